"""Weights of a 1 GB checkpoint: fetching byte ranges from a model host on this machine, and loading them.

    python -m bench.weights [--gigabytes 1.0] [--json]

Three members fetch a third each, side by side, in processes of their own; then one shard is loaded from the sparse
files, beside a plain `mx.load` of the same tensors, in turns. Prints bytes asked of the model host as a multiple of the
checkpoint, MB/s, and peak memory as multiples of the shard.
"""

import argparse
import json
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from kafila_rendezvous.leaving import leave
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from tests.support.checkpoint import Stored, write_json, write_weights
from tests.support.model_host import ModelHost

REPO = "bench/model"
HIDDEN, INTERMEDIATE, VOCABULARY, HEADS = 2048, 5632, 32000, 32
ROUNDS = 3
CUTS = 3


def blocks_for(gigabytes: float) -> int:
    """As many as fill that size in bf16 beside the embedding."""
    block = 2 * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INTERMEDIATE + 2 * HIDDEN)
    return max(CUTS, round((gigabytes * 1e9 - 2 * VOCABULARY * HIDDEN) / block))


def make_checkpoint(folder: Path, blocks: int) -> None:
    """A llama's names and shapes in random bf16."""
    random = np.random.default_rng(1)

    def matrix(*shape: int) -> Stored:
        bits = random.integers(0x3C00, 0x3D00, shape, dtype=np.uint16)  # small positive numbers
        return Stored("BF16", shape, bits.tobytes())

    tensors = [("model.embed_tokens.weight", matrix(VOCABULARY, HIDDEN))]
    for block in range(blocks):
        prefix = f"model.layers.{block}"
        tensors += [(f"{prefix}.self_attn.{name}_proj.weight", matrix(HIDDEN, HIDDEN)) for name in "qkvo"]
        tensors += [(f"{prefix}.mlp.{name}_proj.weight", matrix(INTERMEDIATE, HIDDEN)) for name in ("gate", "up")]
        tensors.append((f"{prefix}.mlp.down_proj.weight", matrix(HIDDEN, INTERMEDIATE)))
        norms = ("input_layernorm", "post_attention_layernorm")
        tensors += [(f"{prefix}.{name}.weight", matrix(HIDDEN)) for name in norms]
    tensors.append(("model.norm.weight", matrix(HIDDEN)))
    folder.mkdir()
    write_weights(folder, tensors, 4)
    config = {
        **{"model_type": "llama", "num_hidden_layers": blocks, "hidden_size": HIDDEN},
        **{"intermediate_size": INTERMEDIATE, "num_attention_heads": HEADS, "num_key_value_heads": HEADS},
        **{"vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True},
        **{"max_position_embeddings": 4096, "torch_dtype": "bfloat16"},
    }
    write_json(folder / "config.json", config)


def part(checkpoint: Checkpoint, blocks: int, stage: int) -> frozenset[str]:
    bounds = [blocks * cut // CUTS for cut in range(CUTS + 1)]
    return checkpoint.shard(start=bounds[stage], end=bounds[stage + 1], head=stage == 0)


async def _fetched(endpoint: str, cache: Path, blocks: int, stage: int) -> dict[str, float]:
    checkpoint = await open_checkpoint(REPO, hub=Hub(endpoint=endpoint), cache=cache)
    began = time.perf_counter()
    names = part(checkpoint, blocks, stage)
    await checkpoint.fetch(names)
    return {"bytes": checkpoint.shard_bytes(names), "seconds": time.perf_counter() - began}


def fetch(endpoint: str, cache: Path, blocks: int, stage: int) -> dict[str, float]:
    """One member's fetch, in a process of its own; with the process' peak memory."""
    import asyncio

    before = _peak_rss_bytes()
    result = asyncio.run(_fetched(endpoint, cache, blocks, stage))
    return {**result, "process_bytes": _peak_rss_bytes() - before}


def load(cache: Path, blocks: int, stage: int, plain: bool) -> dict[str, float]:
    """Loads a stage's shard, or the same tensors by `mx.load`, in a process of its own."""
    import asyncio

    import mlx.core as mx
    import mlx_lm.models.llama  # noqa: F401 - importing takes seconds, which are not the checkpoint's

    from kafila_sidecar.runtime.shard import kv, partial  # noqa: F401
    from kafila_sidecar.runtime.shard.making import loading  # noqa: F401
    from kafila_sidecar.runtime.shard.shard import Shard

    checkpoint = asyncio.run(
        open_checkpoint(REPO, hub=Hub(endpoint="http://127.0.0.1:9"), cache=cache, revision=_only(cache))
    )
    names = part(checkpoint, blocks, stage)
    files = checkpoint.files_for(names)
    start, end = blocks * stage // CUTS, blocks * (stage + 1) // CUTS
    mx.reset_peak_memory()
    before, began = _peak_rss_bytes(), time.perf_counter()
    if plain:
        kept: Any = []
        for path, held in files.items():
            loaded: dict[str, mx.array] = mx.load(str(path), format="safetensors")  # type: ignore[assignment]
            kept += [loaded[name] for name in held]
        mx.eval(kept)
    else:
        kept = Shard.load(folder=checkpoint.small_files, files=files, start=start, end=end, head=stage == 0)
    seconds = time.perf_counter() - began
    shard_bytes = checkpoint.shard_bytes(names)
    figures = {
        "seconds": seconds,
        "peak_over_shard": mx.get_peak_memory() / shard_bytes,
        "process_over_shard_mb": (_peak_rss_bytes() - before - shard_bytes) / 1e6,
    }
    del kept
    return figures


def _only(cache: Path) -> str:
    (revision,) = (path.name for path in (cache / REPO).iterdir())
    return revision


def _peak_rss_bytes() -> int:
    """This process' own: getrusage would begin with its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def alone(call: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def run(gigabytes: float) -> dict[str, float]:
    """The figures by name."""
    blocks = blocks_for(gigabytes)
    folder = Path(tempfile.mkdtemp(prefix="kafila-bench-"))
    try:
        make_checkpoint(folder / "model", blocks)
        with ModelHost({REPO: folder / "model"}, digests=False) as host:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(CUTS, mp_context=spawn) as pool:
                jobs = [pool.submit(fetch, host.endpoint, folder / f"m{i}", blocks, i) for i in range(CUTS)]
                fetched = [job.result() for job in jobs]
            sent = host.sent_bytes(".safetensors")
        total = sum(path.stat().st_size for path in (folder / "model").glob("*.safetensors"))
        rounds = [[alone(load, folder / "m1", blocks, 1, plain) for plain in (False, True)] for _ in range(ROUNDS)]
        return {
            "checkpoint_mb": total / 1e6,
            "sent_over_checkpoint": sent / total,
            "fetch_mb_per_s": sum(one["bytes"] for one in fetched) / max(one["seconds"] for one in fetched) / 1e6,
            "fetch_process_mb": max(one["process_bytes"] for one in fetched) / 1e6,
            "load_peak_over_shard": max(ours["peak_over_shard"] for ours, _ in rounds),
            "load_process_over_shard_mb": max(ours["process_over_shard_mb"] for ours, _ in rounds),
            "load_s": statistics.median(ours["seconds"] for ours, _ in rounds),
            "load_over_mx_load": statistics.median(ours["seconds"] / plain["seconds"] for ours, plain in rounds),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = run(options.gigabytes)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value:10.3f}")


if __name__ == "__main__":
    main()
    leave(0)
