"""From what a person asks for to the session's terms, and to what the planner reads."""

from collections.abc import Mapping
from typing import Any

from kafila_planner.model.types import Objective, Strategy
from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.models.family import text_of
from kafila_sidecar.models.quantisation import check_bits
from kafila_sidecar.runtime.footprint import (
    MOST_ROWS_A_RUN,
    PREFILL_CHUNK_TOKENS,
    RESERVE_BYTES,
    prefill_peak_bytes,
    state_bytes,
)
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.membership.members import Replanning
from kafila_sidecar.session.membership.names import LONGEST_NAME
from kafila_sidecar.weights.checkpoint import Checkpoint
from kafila_sidecar.weights.format.layout import FLOAT_BYTES

DEFAULT_CONTEXT_TOKENS = 4096
SMALLEST_CONTEXT_TOKENS = 4  # as in Ollama, which raises a smaller num_ctx to this
MOST_CONCURRENCY = 256
PROMPT_TOKENS = 512  # that a plan's time to the first token is told for
LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "model_max_length")
STRATEGIES = tuple(strategy.value for strategy in Strategy)
OBJECTIVES = tuple(objective.value for objective in Objective)


def check_terms(request: pb.CreateSessionRequest, most_members: int) -> None:
    """Raises InvalidInput, one sentence that names the field."""
    if not request.model:
        raise InvalidInput("no model is named: give a repository id like org/name, or an absolute path")
    if request.members > most_members:
        raise InvalidInput(f"{request.members} members are more than a session takes, which is {most_members}")
    check_sizes(request.context_tokens, request.concurrency)
    check_replanning(request.replanning or Replanning.AUTO)
    check_bits(request.quantize_bits)
    if request.draft and request.no_guesses:
        raise InvalidInput("a draft model only guesses: a session without guesses has no use for one")
    for names in (request.require, request.exclude):
        if len(names) > most_members or any(len(name) > LONGEST_NAME for name in names):
            raise InvalidInput(f"a plan names {most_members} members at most, of {LONGEST_NAME} characters each")
    if request.strategy and request.strategy not in STRATEGIES:
        raise InvalidInput(f"the strategy {request.strategy!r} is not one of {', '.join(STRATEGIES)}")
    check_objective(request.objective)


def check_objective(said: str) -> None:
    """Raises InvalidInput for what is none; "" is the planner's own choice."""
    if said and said not in OBJECTIVES:
        raise InvalidInput(f"the objective {said[:40]!r} is not one of {', '.join(OBJECTIVES)}")


def check_replanning(said: str) -> Replanning:
    """Raises InvalidInput for what is none."""
    if said not in list(Replanning):
        raise InvalidInput(f"a better plan is for one of {', '.join(Replanning)}, not for {said[:20]!r}")
    return Replanning(said)


def check_sizes(context_tokens: int, concurrency: int) -> None:
    """Raises InvalidInput for what no session is made for, whatever the model. 0 is the default of each."""
    if 0 < context_tokens < SMALLEST_CONTEXT_TOKENS:
        raise InvalidInput(f"a context of {context_tokens} tokens is less than {SMALLEST_CONTEXT_TOKENS}")
    if concurrency > MOST_CONCURRENCY:
        raise InvalidInput(f"a concurrency of {concurrency} is more than {MOST_CONCURRENCY}")


def make_terms(
    request: pb.CreateSessionRequest,
    checkpoint: Checkpoint,
    *,
    rendezvous_at_host: bool,
    draft: Checkpoint | None = None,
) -> ring_pb2.SessionTerms:
    """What the founding entry of the log says."""
    terms = ring_pb2.SessionTerms(
        model=request.model if checkpoint.description is None else checkpoint.name,
        revision=checkpoint.revision,
        members_wanted=request.members,
        context_tokens=context_for(checkpoint, request.context_tokens),
        concurrency=request.concurrency or 1,
        strategy=request.strategy or "kafila",
        objective=request.objective,
        require=request.require,
        exclude=request.exclude,
        weight_bytes=checkpoint.shard_bytes(checkpoint.manifest.tensors),
        rendezvous_at_host=rendezvous_at_host,
        quantize_bits=request.quantize_bits,
        replanning=request.replanning,
        no_guesses=request.no_guesses,
        folder=checkpoint.description is not None,
        quantization=checkpoint.quantization if checkpoint.description else "",
        describing_bytes=checkpoint.description.describing_bytes if checkpoint.description else 0,
    )
    if draft is not None:
        terms.draft, terms.draft_revision = request.draft, draft.revision
        terms.draft_bytes = whole_bytes(draft, tokens=terms.context_tokens, sequences=terms.concurrency)
    return terms


def whole_bytes(checkpoint: Checkpoint, *, tokens: int, sequences: int) -> int:
    """What a machine takes that runs all of it: weights, and the caches of so many sequences of so many tokens."""
    anatomy = checkpoint.anatomy
    shared = min(anatomy.embed_bytes, anatomy.unembed_bytes) if anatomy.tied else 0
    blocks = sum(
        block.held_bytes + sequences * (tokens * block.kv_bytes_per_token + block.kv_fixed_bytes)
        for block in anatomy.blocks
    )
    return anatomy.embed_bytes + anatomy.unembed_bytes + anatomy.norm_bytes - shared + blocks


def with_draft(sizes: Mapping[str, Any], terms: ring_pb2.SessionTerms) -> dict[str, Any]:
    """A model's sizes with what the head has beside it."""
    return {**sizes, "draft_bytes": terms.draft_bytes} if terms.draft_bytes else dict(sizes)


def context_for(checkpoint: Checkpoint, wanted_tokens: int) -> int:
    """The context that was asked for, or the default for 0. Raises InvalidInput for more than the model's own."""
    own = _own_context(checkpoint)
    if wanted_tokens > own:
        raise InvalidInput(f"a context of {wanted_tokens} tokens is more than the model's own {own}")
    return wanted_tokens or min(DEFAULT_CONTEXT_TOKENS, own)


def _own_context(checkpoint: Checkpoint) -> int:
    """The longest sequence that the checkpoint was made for, in tokens; the default where it says nothing sensible."""
    text = text_of(checkpoint.config)
    said = next((text[key] for key in LENGTHS if isinstance(text.get(key), int)), 0)
    own = said if said >= SMALLEST_CONTEXT_TOKENS else DEFAULT_CONTEXT_TOKENS
    return min(own, checkpoint.anatomy.most_tokens or own)


def beside_weights(checkpoint: Checkpoint, context_tokens: int) -> dict[str, int]:
    """What every stage takes beside weights and caches: the planner's reserve_bytes and prefill_peak_bytes, which has
    room for a block that is packed while loading, too: both never come together."""
    peak = prefill_peak_bytes(
        checkpoint.config, context_tokens=context_tokens, item_bytes=FLOAT_BYTES[checkpoint.activation_dtype]
    )
    return {"reserve_bytes": RESERVE_BYTES, "prefill_peak_bytes": max(peak, checkpoint.unpacked_block_bytes)}


def as_served(checkpoint: Checkpoint, context_tokens: int) -> dict[str, int]:
    """How the engine runs what is planned, and for which prompt the time to the first token is told."""
    return {
        "most_rows": MOST_ROWS_A_RUN,
        "chunk_tokens": min(PREFILL_CHUNK_TOKENS, context_tokens),
        "state_bytes": state_bytes(checkpoint.config, item_bytes=FLOAT_BYTES[checkpoint.activation_dtype]),
        "prompt_tokens": min(PROMPT_TOKENS, context_tokens),
    }


def planning_terms(terms: ring_pb2.SessionTerms, checkpoint: Checkpoint) -> PlanningTerms:
    """The same for the host's core."""
    return PlanningTerms(
        members_wanted=terms.members_wanted,
        model=with_draft(checkpoint.sizes, terms),
        context_tokens=terms.context_tokens,
        concurrency=terms.concurrency,
        strategy=terms.strategy,
        objective=terms.objective,
        require=tuple(terms.require),
        exclude=tuple(terms.exclude),
        extra={**beside_weights(checkpoint, terms.context_tokens), **as_served(checkpoint, terms.context_tokens)},
    )
