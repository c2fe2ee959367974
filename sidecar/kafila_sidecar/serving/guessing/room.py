"""How many guesses a step may have, whether they pay or not."""

from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.serving.frames.hop import SMALL_BYTES
from kafila_sidecar.serving.frames.wire import STEP_TOKENS

MOST_GUESSES = STEP_TOKENS - 1


def why_none(limits: StepLimits | None, *, is_wanted: bool, can_forget: bool) -> str:
    """Why no step of this ring has guesses, for people; empty where some have. limits: none before all have told
    theirs. is_wanted: by whoever created the session. can_forget: the model, what it took in."""
    if not is_wanted:
        return "this session was created without them"
    if not can_forget:
        return "this model can't take back a token that was guessed wrongly"
    if limits is None:
        return "not every member has told yet what it computes exactly"
    if limits.bounded < 2:
        return "a member's device computes several tokens at once otherwise than one by one"
    return ""


def most_guesses(
    limits: StepLimits, *, is_greedy: bool, running: int, rows: int, wanted_tokens: int, token_bytes: int
) -> int:
    """running: sequences, of which a run has `rows`: they share the tokens that a run may have. wanted_tokens: of the
    answer, at most. token_bytes: of one token's state, so that a step enters its stream whole.

    Where the next token is drawn at random a step stays exact: how near another draw was is not known.
    """
    exact = limits.bounded if is_greedy else limits.exact
    tokens = min(exact // rows, MOST_ROWS_A_RUN // running, SMALL_BYTES // token_bytes, wanted_tokens, STEP_TOKENS)
    return max(0, tokens - 1)
