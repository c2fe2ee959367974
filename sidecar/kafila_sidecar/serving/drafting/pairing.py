"""Whether one model can guess for another: they have to mean the same by every id."""

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.text.vocabulary import Vocabulary


def check_pair(model: Vocabulary, draft: Vocabulary, *, named: str, draft_named: str) -> None:
    """Raises: Refused, one sentence that says what differs."""
    if why := _difference(model, draft):
        raise Refused(
            f"{draft_named} can't guess for {named}: {why}; a draft model is a smaller one of the same family, with the"
            " same tokenizer"
        )


def _difference(model: Vocabulary, draft: Vocabulary) -> str:
    if (model.size, model.gaps) != (draft.size, draft.gaps):
        return f"one has {model.size - len(model.gaps)} tokens, the other {draft.size - len(draft.gaps)}"
    other = next((at for at in range(model.size) if model.bytes_of(at) != draft.bytes_of(at)), None)
    if other is not None:
        return f"token {other} is {_shown(model, other)} in one and {_shown(draft, other)} in the other"
    if model.controls != draft.controls:
        first = min(model.controls ^ draft.controls)
        return f"token {first} is text for one and a sign for the other"
    if model.eos_ids != draft.eos_ids:
        return "their answers end with different tokens"
    return ""


def _shown(vocabulary: Vocabulary, number: int) -> str:
    return repr(vocabulary.bytes_of(number).decode(errors="replace")[:20])
