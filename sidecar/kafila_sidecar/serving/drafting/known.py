"""Published models that are known to guess for larger ones: of one family, with one tokenizer. Pure.

A suggestion and no more: whether two models mean the same by every id is looked at when a session is created with both
(`pairing`). Families whose small models have windows are not here, since a draft has to forget what it guessed wrongly
(gemma3), nor those whose small models have a tokenizer of their own (phi4, mistral) or are nearly as large.
"""

import re

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.weights.providers.names import GB, NamedModel, known_as

GUESSES_FOR: dict[str, tuple[str, ...]] = {
    "qwen3:0.6b": (
        *("Qwen3-4B", "Qwen3-8B", "Qwen3-14B", "Qwen3-32B", "Qwen3-30B-A3B", "Qwen3-235B-A22B"),
        *("Qwen3-4B-Instruct-2507", "Qwen3-30B-A3B-Instruct-2507", "Qwen3-235B-A22B-Instruct-2507"),
    ),
    "qwen2.5:0.5b": tuple(f"Qwen2.5-{size}-Instruct" for size in ("3B", "7B", "14B", "32B", "72B")),
    "llama3.2:1b": (
        *("Llama-3.1-8B-Instruct", "Llama-3.1-70B-Instruct", "Llama-3.1-405B-Instruct", "Llama-3.3-70B-Instruct"),
        *("Meta-Llama-3.1-8B-Instruct", "Meta-Llama-3.1-70B-Instruct", "Meta-Llama-3.1-405B-Instruct"),
    ),
    "smollm2:135m": ("SmolLM2-1.7B-Instruct",),
}
"""By the small model's short name, the larger ones', whoever published them."""

_FORM = re.compile(r"-(\d+bit|bf16)$")
"""What conversions add to a name."""


def known_draft(model: str) -> NamedModel | None:
    """The small one for a model, by its repository or folder; None where none is known."""
    name = _FORM.sub("", model.rpartition("/")[2])
    return next((known_as(draft) for draft, larger in GUESSES_FOR.items() if name in larger), None)


def notices_of(request: pb.CreateSessionRequest, model: str) -> list[str]:
    """What who creates a session of this model should hear of it: nothing where none is known, one is named, or nothing
    is to be guessed."""
    draft = None if request.draft or request.no_guesses else known_draft(model)
    if draft is None:
        return []
    return [
        f"with `--draft {draft.name}` answers may come quicker: that small model of the same family then guesses on the"
        f" head, which needs {draft.weight_bytes / GB:.1f} GB more for it"
    ]
