"""One request's guesses: from its own text and from a draft model, as many as pay and as it may have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kafila_sidecar.serving.guessing.draft import Draft
from kafila_sidecar.serving.guessing.gate import Allowed, GuessCount, GuessGate
from kafila_sidecar.serving.guessing.lookup import Lookup


class GuessSource(Enum):
    """Where a guess comes from."""

    TEXT = "text"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Paying:
    """Guesses that pay, from one source."""

    source: GuessSource
    guesses: GuessCount


class Guesser:
    """most: guesses a step, as the request wants it; 0 for none at all. draft: the model that guesses too, if any does,
    which knows this request by its number."""

    def __init__(self, most: int, *, draft: Draft | None = None, request: int = 0) -> None:
        self._most = most
        self._draft = draft if most else None
        self._request = request
        self._text: list[int] = []
        self._lookup = Lookup()
        self._gates = {source: GuessGate() for source in GuessSource}

    def saw(self, tokens: Iterable[int]) -> None:
        """The request's text goes on."""
        if self._most:
            tokens = list(tokens)
            self._lookup.add(tokens)
            self._text += tokens

    def paying(self, allowed: Allowed) -> Sequence[Paying]:
        """Guesses that there may be next and that pay, those first with which a token takes least."""
        found = []
        for source in GuessSource:
            if self._may_know(source):
                seconds, guesses = self._gates[source].best(self._priced(source, allowed))
                if guesses != GuessCount():
                    found.append((seconds, Paying(source, guesses)))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    async def guesses(self, source: GuessSource, most: int, ahead: Sequence[int] = ()) -> Sequence[int]:
        """What may follow the text, or these guesses behind it if they are still what would be guessed."""
        if source is GuessSource.TEXT:
            found = self._lookup.guesses(len(ahead) + most)
            return found[len(ahead) :] if found[: len(ahead)] == list(ahead) else ()
        assert self._draft is not None
        return await self._draft.guesses(self._request, [*self._text, *ahead], most)

    def went_without(self) -> None:
        """A circuit without guesses ended."""
        for gate in self._gates.values():
            gate.went_without()

    def judge(self, source: GuessSource, guesses: Sequence[int], kept: Sequence[int], *, is_undecided: bool) -> int:
        """A circuit ended in the tokens `kept`; how many guesses were right. is_undecided: the one after them is to be
        done again."""
        right = len(kept) if is_undecided else max(0, len(kept) - 1)
        self._gates[source].judge(right, right if is_undecided else len(guesses))
        return right

    def judge_ahead(self, source: GuessSource, *, is_right: bool) -> None:
        """The first of the guesses that run ahead is a token now, or none of them will be."""
        self._gates[source].judge(int(is_right), 1)

    def end(self) -> None:
        """The request is over."""
        if self._draft is not None:
            self._draft.forget(self._request)

    def _may_know(self, source: GuessSource) -> bool:
        return self._most > 0 and (self._lookup.may_know if source is GuessSource.TEXT else self._draft is not None)

    def _priced(self, source: GuessSource, allowed: Allowed) -> Allowed:
        """With what the guesses themselves cost."""
        most = min(self._most, allowed.together)
        guess_s = (self._draft.token_s or 0.0) if source is GuessSource.DRAFT and self._draft is not None else 0.0
        if not guess_s:
            return replace(allowed, together=most)
        return replace(
            allowed,
            together=most,
            cost=lambda tokens: allowed.cost(tokens) + (tokens - 1) * guess_s,
            gap_s=allowed.gap_s + guess_s,
        )
