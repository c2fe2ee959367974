"""How many guesses a step may have, whether they pay or not."""

from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.serving.frames.hop import SMALL_BYTES
from kafila_sidecar.serving.frames.wire import STEP_TOKENS

MOST_GUESSES = STEP_TOKENS - 1
MOST_AHEAD = 8  # guesses on their way at once
IDLE = 0.5  # of its time, that the busiest device has to spare where guesses run ahead


def why_none(limits: StepLimits | None, *, is_wanted: bool, can_forget: bool, has_others: bool) -> str:
    """Why nothing is guessed in this ring, for people; empty where something may be. limits: none before all have told
    theirs. is_wanted: by whoever created the session. can_forget: the model, what it took in. has_others: the ring, so
    that guesses may run ahead."""
    if not is_wanted:
        return "this session was created without them"
    if not can_forget:
        return "this model can't take back a token that was guessed wrongly"
    if limits is None:
        return "not every member has told yet what it computes exactly"
    if limits.bounded < 2 and not has_others:
        return "a member's device computes several tokens at once otherwise than one by one"
    return ""


def most_guesses(limits: StepLimits, *, is_greedy: bool, running: int, wanted_tokens: int, token_bytes: int) -> int:
    """running: sequences, which share the tokens that a run may have. wanted_tokens: of the answer, at most.
    token_bytes: of one token's state, so that a step enters its stream whole.

    Where the next token is drawn at random a step stays exact: how near another draw was is not known.
    """
    exact = limits.bounded if is_greedy else limits.exact
    tokens = min(exact, MOST_ROWS_A_RUN // running, SMALL_BYTES // token_bytes, wanted_tokens, STEP_TOKENS)
    return max(0, tokens - 1)


def most_ahead(lone_s: float | None, busiest_s: float | None, *, running: int, wanted_tokens: int) -> int:
    """Guesses that may be on their way at once, each in a step of its own: as many as the ring computes at a time, and
    none unless the busiest device idles enough. lone_s: of a circuit. busiest_s: of that on the device that takes most
    of it; None: not known yet. wanted_tokens: of the answer, at most."""
    if lone_s is None or busiest_s is None or running * busiest_s > (1 - IDLE) * lone_s:
        return 0
    return max(0, min(int(lone_s / (running * busiest_s)), MOST_AHEAD, wanted_tokens - 1))
