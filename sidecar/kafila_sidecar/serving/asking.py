"""Goes on with an answer whatever becomes of head, ring and links: whenever it breaks off, it is asked again with what
was told of it, of the head that there is then. There is no other way to go on, at the head as elsewhere."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted, KafilaError, Unavailable
from kafila_sidecar.net.errors import LinkLost, PeerReset
from kafila_sidecar.serving.epoch import Epoch
from kafila_sidecar.serving.intake.question import Question, Told, interruption
from kafila_sidecar.serving.ring import Interrupted
from kafila_sidecar.serving.succession import Succession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnswerPatience:
    """How long an answer waits for what it takes to go on."""

    epoch_s: float = 900.0  # for the next epoch: others plan, fetch and load meanwhile
    ring_s: float = 120.0  # for ring and links of an epoch that goes on; far more than a death takes to be noticed
    tries: int = 8  # and at least so often, since a try may take a whole prompt
    first_pause_s: float = 0.1  # before the second try; twice as long each time
    longest_pause_s: float = 2.0
    give_way_s: float = 0.5  # what waited for its turn when it was interrupted lets go first what had begun, anywhere


class Tries:
    """Tries in one epoch without a token of the answer. Reads no clock."""

    def __init__(self, patience: AnswerPatience) -> None:
        self._patience = patience
        self._epoch: Epoch | None = None
        self._tokens = 0  # that there were at the latest failure
        self._since = 0.0
        self._count = 0

    def failed(self, epoch: Epoch, tokens: int, now: float) -> float | None:
        """How long to pause before the next try in this epoch; None: it has been tried often enough."""
        if epoch is not self._epoch or tokens != self._tokens:
            self._epoch, self._tokens, self._since, self._count = epoch, tokens, now, 0
        self._count += 1
        if self._count >= self._patience.tries and now - self._since > self._patience.ring_s:
            return None
        return min(self._patience.first_pause_s * 2.0 ** (self._count - 1), self._patience.longest_pause_s)


async def answer(
    question: Question, epochs: Succession, patience: AnswerPatience
) -> AsyncGenerator[pb.GenerateReply, None]:
    """The replies of one answer from where it stands, the last one with `done`. Closing the iterator gives it up.

    Raises:
        KafilaError: what a head refused with; the fault of a session that is over; nothing went on for too long.
    """
    tries, was_asked = Tries(patience), False
    while True:
        if question.request.tells_headway and (was_asked or epochs.is_between):
            yield interruption()
        epoch = await epochs.present(patience.epoch_s)
        if was_asked and not question.has_begun:
            await epochs.replaced(epoch, patience.give_way_s)
        try:
            async with aclosing(_run(question, epoch)) as told_now:
                async for told in told_now:
                    if told.reply.text or told.reply.done or _is_wanted_headway(told, question):
                        yield told.reply
                    if told.reply.done:
                        return
        except (Interrupted, LinkLost, PeerReset) as error:
            fault: KafilaError = error
        except Exhausted as error:
            if not was_asked:
                raise
            fault = error
        question.interrupted()
        was_asked = True
        tokens = len(question.replay.answer)
        pause_s = tries.failed(epoch, tokens, monotonic())
        if pause_s is None and epochs.epoch is epoch:
            raise Unavailable(f"this answer can't go on, it was tried for {patience.ring_s:.0f} s and more: {fault}")
        log.info("answer_interrupted tokens=%d epoch=%d", tokens, epoch.proposal.epoch)
        await epochs.replaced(epoch, pause_s or 0.0)


def _is_wanted_headway(told: Told, question: Question) -> bool:
    """A head may be another member, and say what nobody asked for."""
    return question.request.tells_headway and told.reply.HasField("headway")


async def _run(question: Question, epoch: Epoch) -> AsyncGenerator[Told, None]:
    """What one run tells."""
    was_begun, tokens = question.has_begun, len(question.replay.answer)
    async with epoch.asked(question) as replies:
        while True:
            told = await replies.next()
            question.take(told, monotonic())
            if was_begun and told.tokens:
                was_begun = False
                log.info("answer_goes_on tokens=%d epoch=%d", tokens, epoch.proposal.epoch)
            yield told
