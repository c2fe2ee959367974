"""Proves one architecture: a ring of its own code against mlx-lm's whole model, logits bit for bit."""

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.quantized import quantize
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from kafila_sidecar.models.family import Family, Together, Tying, is_embedding, is_unembedding
from kafila_sidecar.models.reading import Reading
from kafila_sidecar.runtime.shard.making.building import Built, built_from, flat
from kafila_sidecar.runtime.shard.making.loading import absent, filled
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from tests.exact.candidates import RULES
from tests.exact.shapes import VOCAB, tiny_config
from tests.support.checkpoint import write_json

PROMPT = [(7 * i) % (VOCAB - 6) + 3 for i in range(30)]
CHUNK = 23  # more than twice the windows of the tiny shapes
STEPS = 10
EMBEDDINGS = (
    *("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "token_embeddings", "embeddings", "embed_in"),
    *("embed", "embedding"),
)
"""What the embedding of tokens is called, the likelier first."""
Logits = list[mx.array]


@dataclass(frozen=True, slots=True)
class Proved:
    """What was found out about one architecture. wrong: the cuts at which the ring was not the whole model."""

    family: Family
    wrong: tuple[tuple[int, ...], ...]
    uncuttable: tuple[int, ...]
    crosses: int  # elements of a token at the first cut, of the state's width


def prove(module: str, folder: Path, **more: Any) -> Proved:
    """Makes a tiny checkpoint in `folder`, and compares rings of it with mlx-lm's own reading of it.

    more: keys of the text model's configuration.
    """
    mx.random.seed(3)
    config = tiny_config(module, **more)
    family = looked_at(module, config)
    write_checkpoint(folder, config)
    reference = whole(folder)
    assert all(bool(mx.isfinite(logits).all()) for logits in reference), f"{module}: mlx-lm's logits are no numbers"
    reading = Reading(family, config, False, None)
    roll = built_from(reading).roll
    uncuttable = roll.no_cut_after()
    wrong = []
    for cuts in cuts_for(len(roll.places), uncuttable):
        answer = ring(reading, folder, cuts)
        if not all(bool(mx.array_equal(ours, theirs)) for ours, theirs in zip(answer, reference, strict=True)):
            wrong.append(cuts)
    return Proved(together(family, config, folder), tuple(wrong), uncuttable, roll.packing(family, 1).layout.width)


def together(family: Family, config: dict[str, Any], folder: Path) -> Family:
    """The family with the most that its code computes right for several sequences in one run."""
    for how in (Together.BUT_ATTENTION, Together.BESIDE_CACHE):
        reading = Reading(replace(family, together=how), config, False, None)
        roll = built_from(reading).roll
        cuts = max(cuts_for(len(roll.places), roll.no_cut_after()), key=len)
        try:
            difference = apart(reading, folder, cuts)
        except (AttributeError, TypeError, ValueError):  # the code does with a view what it does not offer
            continue
        if difference <= ROUNDING:
            return reading.family
    return replace(family, together=Together.NOTHING)


LENGTHS = {1: 30, 2: 5, 3: 17, 4: 9}
"""Of the prompts of several sequences: shorter and longer than the windows of the tiny shapes."""
RUNS = ((1, 2), (2, 1), (3, 1, 2), (1, 4, 3, 2), (4, 2, 3, 1), (3, 4, 2), (2, 4), (4, 2))
"""Who is in each run: some come late, some go early, and places change."""
FORCED = [(11 * i) % (VOCAB - 6) + 3 for i in range(len(RUNS))]
"""What each sequence is given after its prompt, one a run in which it is."""
ROUNDING = 1e-5  # f32 sums in another order, as a share of the largest logit


def apart(reading: Reading, folder: Path, cuts: Sequence[int]) -> float:
    """The largest difference of a logit, as a share of the largest one, that the neighbours in a run make."""
    alone, several = (
        [shard(reading, folder, start, end, head=start == 0) for start, end in pairwise(cuts)] for _ in range(2)
    )
    for sequence, length in LENGTHS.items():
        for shards in (alone, several):
            run_of_rows(shards, [sequence], [PROMPT[:length]])
    worst = largest = 0.0
    fed = dict.fromkeys(LENGTHS, 0)
    for run in RUNS:
        tokens = [[FORCED[fed[sequence]]] for sequence in run]
        rows = run_of_rows(several, run, tokens)
        for row, sequence, given in zip(rows, run, tokens, strict=True):
            own = run_of_rows(alone, [sequence], [given])[0]
            worst = max(worst, float(mx.abs(row - own).max()))
            largest = max(largest, float(mx.abs(own).max()))
            fed[sequence] += 1
    for one in (*alone, *several):
        one.close()
    return worst / largest


def run_of_rows(shards: Sequence[Shard], run: Sequence[int], tokens: Sequence[Sequence[int]]) -> Logits:
    """The logits after the tokens of each sequence, all in one run of each stage."""
    states = shards[0].embed_rows(list(zip(run, tokens, strict=True)))
    for one in shards[1:]:
        made = one.run_rows(list(zip(run, states, strict=True)))
        states = [state for state in made if isinstance(state, HiddenState)]
    return list(shards[0].logits_of(list(zip(run, states, strict=True))))


def looked_at(module: str, config: dict[str, Any]) -> Family:
    """The Family of a model file, with what can be seen of its Model."""
    model = model_of(module, config)
    names = dict(model.named_modules())
    first = model.layers[0]
    blocks = min((name for name, part in names.items() if part is first), key=len).rpartition(".")[0]
    outside = [name for name, part in names.items() if isinstance(part, Embedding) and not name.startswith(blocks)]
    leaves = {name.rpartition(".")[2]: name for name in sorted(outside, reverse=True)}
    embedding = next(leaves[leaf] for leaf in EMBEDDINGS if leaf in leaves) if leaves else ""
    caches = tuple(sorted({type(cache).__name__ for cache in make_prompt_cache(model)}))
    seen = {"blocks": blocks, "embedding": embedding, "tying": tying(module, config), "caches": caches}
    parameters = [name for name, _ in flat(model) if not name.startswith(f"{blocks}.")]
    seen["norm"] = not all(is_embedding(name) or is_unembedding(name) for name in parameters)
    return Family(module, **{**seen, **RULES.get(module, {})})


def model_of(module: str, config: dict[str, Any]) -> Any:
    architecture = importlib.import_module(f"mlx_lm.models.{module}")
    return architecture.Model(architecture.ModelArgs.from_dict(json.loads(json.dumps(config))))


def tying(module: str, config: dict[str, Any]) -> Tying:
    """Whether the configuration decides on an unembedding, seen by trying both."""
    has = []
    for tied in (True, False):
        said: dict[str, Any] = json.loads(json.dumps(config))
        said.get("text_config", said)["tie_word_embeddings"] = tied
        has.append(any(is_unembedding(name) for name, _ in flat(model_of(module, said))))
    if has == [False, True]:
        return Tying.CONFIGURED
    if not all(has):
        return Tying.ALWAYS
    model = model_of(module, config)
    weights = {name: array for name, array in flat(model) if not is_unembedding(name)}
    if hasattr(model, "sanitize"):
        model.sanitize(weights)
    return Tying.NEVER if any(is_unembedding(name) for name, _ in flat(model)) else Tying.FILES


def write_checkpoint(
    folder: Path, config: dict[str, Any], overrides: Mapping[str, dict[str, Any]] | None = None, **quantisation: Any
) -> None:
    """A random checkpoint as MLX's own tools save it; with `overrides` for single modules' packing."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model_of(str(config["model_type"]), config)
    model.load_weights([(name, telling(name, array)) for name, array in flat(model)])
    if quantisation:
        own = dict(overrides or {})
        group = quantisation["group_size"]

        def form(path: str, part: Any) -> Any:
            return own.get(path, hasattr(part, "to_quantized") and part.weight.shape[-1] % group == 0)

        quantize(model, **quantisation, class_predicate=form)
        config = config | {"quantization": quantisation | own}
    weights = dict(flat(model))
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    write_json(folder / "config.json", config)


def telling(name: str, array: mx.array) -> mx.array:
    """Values under which a mistake shows: as built, norms, biases and gains are all alike."""
    if not mx.issubdtype(array.dtype, mx.floating) or not array.size:
        return array
    if "embed" in name and array.ndim > 1:
        return 0.2 * array
    return array + (0.1 if array.ndim == 1 else 0.02) * mx.random.normal(array.shape, dtype=array.dtype)


def whole(folder: Path) -> Logits:
    """mlx-lm's own model on the prompt in two chunks, then greedily on."""
    model, _ = load_model(folder)
    caches = make_prompt_cache(model)

    def step(tokens: Sequence[int]) -> mx.array:
        logits: mx.array = model(mx.array([list(tokens)]), cache=caches)[0, -1]
        mx.eval(logits, [cache.state for cache in caches])
        return logits

    step(PROMPT[:CHUNK])
    return list(answers(step))


def answers(step: Any) -> Iterator[mx.array]:
    logits = step(PROMPT[CHUNK:])
    yield logits
    for _ in range(STEPS):
        logits = step([int(mx.argmax(logits))])
        yield logits


def ring(reading: Reading, folder: Path, cuts: Sequence[int]) -> Logits:
    """Shards with the blocks between neighbouring cuts, what isn't theirs poisoned with NaN."""
    return rings_answers([shard(reading, folder, start, end, head=start == 0) for start, end in pairwise(cuts)])


def rings_answers(shards: Sequence[Shard]) -> Logits:
    """As `whole`, of shards one after the other; closes them."""

    def step(tokens: Sequence[int]) -> mx.array:
        state = shards[0].embed_and_blocks(1, tokens)
        for one in shards[1:]:
            state = one.run_blocks(1, state)
        return shards[0].norm_and_head(1, state)

    state = shards[0].embed_and_blocks(1, PROMPT[:CHUNK])
    for one in shards[1:-1]:
        state = one.run_blocks(1, state)
    if len(shards) > 1:
        shards[-1].absorb(1, state)
    logits = list(answers(step))
    for one in shards:
        one.close()
    return logits


def shard(reading: Reading, folder: Path, start: int, end: int, *, head: bool, quick: bool = False) -> Shard:
    built: Built = built_from(reading)
    file = folder / "model.safetensors"
    arrays: Any = mx.load(str(file))
    ours = [name for name in arrays if reading.holds(name, start=start, end=end, head=head)]
    weights = {name: array if name in ours else absent(array.shape, array.dtype) for name, array in arrays.items()}
    whole = filled(built, {file: ours}, weights, start=start, end=end, head=head)
    return Shard.of(whole, start, end, head=head, quick=quick)


def cuts_for(blocks: int, uncuttable: Sequence[int]) -> list[tuple[int, ...]]:
    """One stage, two and three, at different places, where cuts may be."""
    wanted = [(0, blocks), (0, 1, blocks), (0, 2, 4, blocks), (0, blocks // 2, blocks - 1, blocks)]
    banned = {block + 1 for block in uncuttable}
    return sorted({tuple(dict.fromkeys(cut for cut in cuts if cut not in banned)) for cuts in wanted})
