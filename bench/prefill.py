"""How many times as quickly a prompt's tokens are read as an answer's are made, by element type and packing.

    python -m bench.prefill [--width 1024 4096] [--tokens 256] [--context 1024] [--rounds 5] [--forms f32 …] [--record]

A few blocks of Qwen3's shape with made-up weights, as the probe runs them: the product's own shard, which on a
processor computes long chunks of 16 bits and less, and of experts, through float32. The forms take turns, so that a
drifting machine hits all alike. Set OMP_NUM_THREADS to as many threads as the BLAS shall have. Wanted: 8 in every form.
Ends with 1 where that is missed.

Experts in f32 of which a token chooses 4 of 16 come to it from some 64 to 128 tokens on: 5.5 was seen at 32, 8.9 at 64
(two cores, behind 64 tokens) and 9.1 at 128 (behind 1,024). An answer's token reads the matrices of 4 experts; a
prompt's tokens choose all 16 together, whose matrices are read for few rows each: 8 of 32 tokens, at which a product
takes twice as long a row as at 32. Of more experts, or of fewer that a token chooses, it takes as many more tokens.
Packed ones come to it at 32 already, since MLX decodes them so slowly.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from bench.record import add_record_option, record
from kafila_rendezvous.leaving import leave
from kafila_sidecar.runtime.mlx_thread import MlxThread

WANTED = 8.0
STEPS = 3  # of an answer, in a round
SEQUENCE = 1
BLOCKS = {1024: 4, 4096: 1}  # by width
SHAPES: dict[int, dict[str, Any]] = {
    1024: {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8},
    4096: {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8},
}
MIXTURE = {"model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 4, "decoder_sparse_step": 1,
           "mlp_only_layers": [], "norm_topk_prob": True, "moe_intermediate_size": 768}  # fmt: skip
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "f32": ("float32", {}),
    "bf16": ("bfloat16", {}),
    "f16": ("float16", {}),
    "8 bits": ("bfloat16", {"bits": 8, "group_size": 64}),
    "4 bits": ("bfloat16", {"bits": 4, "group_size": 64}),
    "4 bits, f16": ("float16", {"bits": 4, "group_size": 64}),
    "4 bits, f32": ("float32", {"bits": 4, "group_size": 64}),
    "3 bits": ("bfloat16", {"bits": 3, "group_size": 64}),
    "mxfp4": ("bfloat16", {"bits": 4, "group_size": 32, "mode": "mxfp4"}),
    "nvfp4": ("bfloat16", {"bits": 4, "group_size": 16, "mode": "nvfp4"}),
    "mxfp8": ("bfloat16", {"bits": 8, "group_size": 32, "mode": "mxfp8"}),
    "experts, f32": ("float32", MIXTURE),
    "experts, 4 bits": ("bfloat16", {**MIXTURE, "bits": 4, "group_size": 64}),
}
"""Element type, and what config.json says beside the shape."""


@dataclass(frozen=True, slots=True)
class RoundRead:
    """Seconds of a token, decoded and read."""

    step_s: float
    prompt_s: float

    @property
    def ratio(self) -> float:
        return self.step_s / self.prompt_s


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, nargs="+", choices=sorted(SHAPES), default=sorted(SHAPES))
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--context", type=int, default=1024, help="tokens before those of the prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    add_record_option(parser)
    options = parser.parse_args()
    thread = MlxThread()
    figures: dict[str, dict[str, float]] = {}
    print(f"{'width':>6} {'form':>16} {'decode t/s':>11} {'prompt t/s':>11} {'ratio':>7}")
    for width in options.width:
        rounds = await thread.run(read_all, width, options)
        for form, one in rounds.items():
            figures[f"{width} {form}"] = shown(width, form, one)
    thread.close()
    if options.record:
        told = {"tokens": options.tokens, "context": options.context, "rounds": options.rounds}
        record("prefill", {**told, **figures})
    return int(any(one["ratio"] < WANTED for one in figures.values()))


def read_all(width: int, options: argparse.Namespace) -> dict[str, list[RoundRead]]:
    """Forms in turns."""
    readers = {form: reader_of(width, form, options.tokens, options.context) for form in options.forms}
    for read in readers.values():
        read()
    taken: dict[str, list[RoundRead]] = {form: [] for form in options.forms}
    for _ in range(options.rounds):
        for form, read in readers.items():
            taken[form].append(read())
    return taken


def reader_of(width: int, form: str, tokens: int, context: int) -> Callable[[], RoundRead]:
    """Reads a prompt, and makes a few tokens after it."""
    from kafila_sidecar.runtime.probe.synthetic import CheckpointShape

    dtype, packing = FORMS[form]
    checkpoint = CheckpointShape(config_of(width, packing), dtype)
    shard = checkpoint.stage(end=BLOCKS[width], head=False)
    prompt = replace(checkpoint.state(batch=1, tokens=tokens), position=context)
    step = checkpoint.state(batch=1, tokens=1)
    if context:
        shard.run_blocks(SEQUENCE, checkpoint.state(batch=1, tokens=context))

    def read() -> RoundRead:
        if context:
            shard.rewind(SEQUENCE, context)
        else:
            shard.release(SEQUENCE)
        prompt_s = seconds(partial(shard.run_blocks, SEQUENCE, prompt)) / tokens
        steps = (replace(step, position=context + tokens + at) for at in range(STEPS))
        steps_s = [seconds(partial(shard.run_blocks, SEQUENCE, one)) for one in steps]
        return RoundRead(median(steps_s), prompt_s)

    return read


def config_of(width: int, packing: dict[str, Any]) -> dict[str, Any]:
    packed = {key: packing[key] for key in ("bits", "group_size", "mode") if key in packing}
    others = {key: said for key, said in packing.items() if key not in packed}
    return {
        **{"model_type": "qwen3", "head_dim": 128, "num_hidden_layers": 8, "vocab_size": 1024, "rms_norm_eps": 1e-6},
        **{"rope_theta": 1e6, "max_position_embeddings": 4096, "tie_word_embeddings": True},
        **SHAPES[width],
        **others,
        **({"quantization": packed} if packed else {}),
    }


def seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def shown(width: int, form: str, rounds: Sequence[RoundRead]) -> dict[str, float]:
    """Prints a line."""
    step_s, prompt_s = median(one.step_s for one in rounds), median(one.prompt_s for one in rounds)
    ratio = median(one.ratio for one in rounds)
    verdict = "" if ratio >= WANTED else "  MISSED"
    print(f"{width:6} {form:>16} {1 / step_s:11.1f} {1 / prompt_s:11.1f} {ratio:7.1f}{verdict}", flush=True)
    return {"decode_tokens_per_s": 1 / step_s, "prompt_tokens_per_s": 1 / prompt_s, "ratio": ratio}


if __name__ == "__main__":
    leave(asyncio.run(main()))
