"""Log probabilities of an answer's tokens: each is told with the text that it is a part of, and none for text that a
stop string cut off, as in stock Ollama. Pure."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.runtime.shard.picking import TokenScore


@dataclass(slots=True)
class ScoreLine:
    """Those that wait for their text. spell: a token's own text. Places are in characters of the answer as it was
    decoded, before stop strings."""

    spell: Callable[[int], bytes]
    _waiting: deque[tuple[int, int, TokenScore]] = field(default_factory=deque)

    def add(self, begin: int, token: int, score: TokenScore) -> None:
        """A token whose text begins at `begin`."""
        self._waiting.append((begin, token, score))

    def due(self, shown: int) -> list[pb.TokenLogprob]:
        """Those of the tokens that `shown` characters have begun to show."""
        told = []
        while self._waiting and self._waiting[0][0] < shown:
            told.append(self._told(*self._waiting.popleft()[1:]))
        return told

    def rest(self) -> list[pb.TokenLogprob]:
        """All that wait, once the answer has ended by itself."""
        told = [self._told(token, score) for _, token, score in self._waiting]
        self._waiting.clear()
        return told

    def _told(self, token: int, score: TokenScore) -> pb.TokenLogprob:
        top = [pb.TokenLogprob(token=self.spell(number), logprob=logprob) for number, logprob in score.top]
        return pb.TokenLogprob(token=self.spell(token), logprob=score.logprob, top=top)


def on_the_way(scores: Iterable[TokenScore]) -> list[ring_pb2.Score]:
    """Scores as they travel beside ids."""
    return [
        ring_pb2.Score(
            logprob=score.logprob,
            top=[number for number, _ in score.top],
            top_logprobs=[logprob for _, logprob in score.top],
        )
        for score in scores
    ]


def arrived(scores: Iterable[ring_pb2.Score]) -> list[TokenScore]:
    """What `on_the_way` made."""
    return [TokenScore(one.logprob, tuple(zip(one.top, one.top_logprobs, strict=True))) for one in scores]
