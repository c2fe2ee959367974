"""Rings on GPUs beside mlx-lm alone on one of them, in turns, in one run: Qwen3-8B's shape, bfloat16, random weights.

    python -m bench.gpu_ring [--size 8b] [--members 1 2 4] [--users 1 4 16] [--tokens 64] [--minutes 5] [--record]
    python -m bench.gpu_ring --size tiny --device cpu --minutes 0.5

Every member is a process with its own part in memory, the links are QUIC on loopback. Members share the GPUs that
there are, in ring order. Printed: quartiles of tokens a second and of milliseconds a token, for how many tokens the
first user's text is mlx-lm's, and what is wanted: one user 85 % of mlx-lm alone on two members and 70 % on four, four
users 4 times one user on four, sixteen users as much as mlx-lm's batch of sixteen on four. After so many minutes,
loading included, no further round begins.

Every member's speed is measured first as the product measures it, on the first GPU alone, and stages choose their rows
by that: of an H200 0.24 ms a block for one row, 0.34 for four and 0.48 for eight. So on four members four users have
runs of one row, and sixteen of four, for whom 24 ms a token are planned, or 670 tokens/s, with a GPU for each member.

Seen in one run on two H200s, two members a GPU on four, medians of three rounds: mlx-lm alone 162 tokens/s,
and 1,332 for sixteen users; rings of one, two and four 128, 99 and 69 for one user (0.61 and 0.43 of mlx-lm alone); the
ring of four 210 for four users (3.0 times one) and 436 for sixteen (0.33 of mlx-lm's batch). Without runs of several
rows, eight rounds: 140 and 1,002; 135, 102 and 66; 215 (3.4 times one) and 273. On one H200, ten rounds:
136 and 1,181; 120, 97 and 68 (0.71 and 0.50); 156 (2.3 times one) and 373, and 275 before runs were handed over and
built ahead as a whole. One GPU computes the single steps of several users one after another, some 5 ms each.

Seen on another H200 later, medians of three rounds: mlx-lm alone 113 and 970 tokens/s, rings of one, two and four 98,
96 and 67 for one user (0.85 and 0.59); the ring of four 155 for four users (2.3 times) and 354 for sixteen. mlx-lm
drifts from machine to machine, and from minute to minute there, between 113 and 162 tokens/s, rings less. With the GPU
shared through NVIDIA's MPS, four rounds: mlx-lm alone 146, rings of two and four 101 and 68 (0.67 and 0.46), four
users 186 (2.7 times): some of what several members cost on one GPU is its changing from one process to another.

Joined matrices for q/k/v and for gate/up, tried on nine blocks: 2.2 ms a step for one row with and without, 4.1 in
place of 4.9 for four rows. MLX_MAX_MB_PER_BUFFER=200: 1.8 in place of 2.0 ms a step, and nothing to be seen of it in
the ring.

Seen in one run on four H200s before that, medians of nine rounds: mlx-lm alone 195 tokens/s, and 1,372 for sixteen
users; rings of one, two and four 163, 109 and 74 for one user; the ring of four 241 for four users and 336 for sixteen.
Of the 13 ms of a token on four, blocks take 9 to 10 (handing operations over, 1 ms before the GPU has work; the GPU
itself some 4), and each hop 1.1 to 1.4, of which QUIC has 0.4 and three threads waking one another the rest.

What a run costs a stage of ten blocks: for one row 0.9 ms to build and 1.1 to hand over, for four 1.6 and 3.1, and the
GPU ends 1 ms after that. A product of several rows takes 17 µs to hand over where one of one row takes 6, and one over
4-bit weights 4, for any number of rows. For sixteen rows attention row by row costs twice what it would over one array
of all their keys, for four a tenth more. One user's texts were mlx-lm's to the last token; of several users' none is,
nor are those of mlx-lm's own batch: chunks of prompts round otherwise than other ones there, and rows than one row.

MLX in a member's process takes the environment of this one, so that its options can be tried:
`MLX_MAX_OPS_PER_BUFFER=40 python -m bench.gpu_ring`.
"""

import argparse
import asyncio
import multiprocessing
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from zlib import crc32

from bench.members import Answered, RingShape, environment, received, ring_of_processes
from bench.record import add_record_option, record
from kafila_rendezvous.leaving import leave
from kafila_sidecar.machine.handling import Handling
from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.probe.probe import probe
from kafila_sidecar.runtime.shard.shard import Shard

SIZES: dict[str, dict[str, Any]] = {
    "8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 16,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 8192,
    },
}
COMMON: dict[str, Any] = {
    "model_type": "qwen3",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
UNTIED = ("lm_head.weight",)
SPREAD = 0.02  # of the random weights, about what trained ones have
HEAD_AS_BLOCKS = 4  # what norm, unembedding, picking and embedding cost beside a block
PROMPT_TOKENS = 32
CONTEXT_TOKENS = 2048
WARM_UP_TOKENS = 4
ALONE = "mlx-lm alone"
RTT_S = 0.0006  # between members, as on one host


class Answers(Protocol):
    """mlx-lm alone, or a ring."""

    def answer(self, prompts: Sequence[Sequence[int]], tokens: int) -> Sequence[Answered]: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=5.0)
    add_record_option(parser)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    config = {**COMMON, **SIZES[options.size]}
    gpus = gpu_count() if options.device == "gpu" else 0
    print(f"{gpus} GPUs; {options.size}; {options.tokens} tokens each", flush=True)
    measured = measured_here(config, options.device)
    print(f"measured of each member: {shown_entry(measured)}", flush=True)
    with ExitStack() as stack:
        systems: dict[str, Answers] = {ALONE: stack.enter_context(alone(config, options.device, visible(0, 1, gpus)))}
        for members in options.members:
            shape = shape_of(config, members, max(options.users), options.device, gpus, measured)
            systems[f"ring of {members}"] = stack.enter_context(ring_of_processes(shape))
            print(f"ring of {members}, blocks cut at {shape.cuts}: in memory", flush=True)
        prompts = {users: prompts_for(users, config["vocab_size"]) for users in options.users}
        for name, system in systems.items():
            for users in options.users:
                system.answer(prompts[users], WARM_UP_TOKENS)
            print(f"{name}: warm", flush=True)
        rounds: list[Round] = []
        while not rounds or time.monotonic() < until:
            rounds.append(one_round(systems, prompts, options.tokens))
    figures = report(rounds)
    if options.record:
        record(f"gpu ring {options.size}", {"gpus": gpus, "rounds": len(rounds), **figures})


def gpu_count() -> int:
    """How many NVIDIA GPUs there are; 0 where there is no tool to tell, as on a Mac, whose one GPU all share."""
    try:
        listed = subprocess.run(("nvidia-smi", "-L"), capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return listed.stdout.count("GPU ")


def visible(place: int, members: int, gpus: int) -> Mapping[str, str]:
    """What a member's process is told of the GPUs: one, in ring order."""
    return {"CUDA_VISIBLE_DEVICES": str(place * min(gpus, members) // members)} if gpus else {}


def shape_of(
    config: Mapping[str, Any], members: int, users: int, device: str, gpus: int, measured: Mapping[str, Any]
) -> RingShape:
    """Equal shares of the work, where the head's own counts as some blocks."""
    blocks = config["num_hidden_layers"]
    share = (blocks + HEAD_AS_BLOCKS) / members
    cuts = [0, *(max(1, round(share * place - HEAD_AS_BLOCKS)) for place in range(1, members)), blocks]
    return RingShape(
        cuts=cuts,
        make_shard=partial(make_shard, config, device),
        vocabulary=config["vocab_size"],
        context_tokens=CONTEXT_TOKENS,
        concurrency=users,
        measured=measured,
        env=[visible(place, members, gpus) for place in range(members)],
    )


def prompts_for(users: int, vocabulary: int) -> Sequence[Sequence[int]]:
    """The first one is the same for any number of users."""
    return [[crc32(f"{user} {at}".encode()) % vocabulary for at in range(PROMPT_TOKENS)] for user in range(users)]


# ---- What the planner is told of each member, by which stages choose their rows


def measured_here(config: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    """As the product measures a machine, in a process of its own with the first GPU."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        return other.submit(measure, config, device).result()


def measure(config: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    return asyncio.run(_measure(config, device))


async def _measure(config: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    thread = MlxThread()
    try:
        await thread.run(choose, device)
        with TemporaryDirectory() as kept:
            measured = await probe(thread, config, "bfloat16", most_rows=MOST_ROWS_A_RUN, cache=Path(kept))
        entry = {**measured.member_json(), **await Handling(thread).entry(config), "rtt_s": RTT_S}
    finally:
        thread.close()
    return {name: value for name, value in entry.items() if name != "memory_bytes"}


def shown_entry(entry: Mapping[str, Any]) -> str:
    blocks, heads = ({rows: f"{1e3 * at:.3f}" for rows, at in entry[name].items()} for name in ("block_s", "head_s"))
    beside = ", ".join(f"{name} {1e3 * entry[name]:.2f} ms" for name in ("overhead_s", "handling_s") if name in entry)
    return f"a block of so many rows {blocks} ms, the head's own {heads} ms, {beside}"


# ---- The weights, the same in every process


def make_shard(config: Mapping[str, Any], device: str, start: int, end: int, head: bool) -> Shard:
    """A stage with its part of the random model; on the MLX thread."""
    from kafila_sidecar.runtime.shard.making.building import build, flat
    from kafila_sidecar.runtime.shard.making.loading import strip_absent

    choose(device)
    built = build(config, UNTIED)
    strip_absent(built, start=start, end=end)
    names = [name for name, _ in flat(built.model) if built.is_of(name, start, end, head=head)]
    fill(built.model, names)
    return Shard.of(built, start, end, head=head)


def choose(device: str) -> None:
    import mlx.core as mx

    if device == "cpu":
        mx.set_default_device(mx.cpu)


def fill(model: Any, names: Sequence[str]) -> None:
    """Gives the model random weights of these names, which follow from the names."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    flat: Any = tree_flatten(model.parameters())
    shapes = {name: array.shape for name, array in flat}
    for name in names:
        array = mx.random.normal(shapes[name], dtype=mx.bfloat16, key=mx.random.key(crc32(name.encode())))
        array = 1 + 0.1 * array if array.ndim == 1 else SPREAD * array
        mx.eval(array)
        model.load_weights([(name, array)], strict=False)
    mx.clear_cache()


# ---- mlx-lm alone


class MlxLmAlone:
    """mlx-lm with the whole model in a process of its own, as its parent sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def answer(self, prompts: Sequence[Sequence[int]], tokens: int) -> Sequence[Answered]:
        """One prompt by mlx-lm's generate_step, several as a batch of its own."""
        self._pipe.send((prompts, tokens))
        answers: Sequence[Answered] = received(self._pipe)
        return answers


@contextmanager
def alone(config: Mapping[str, Any], device: str, env: Mapping[str, str]) -> Iterator[MlxLmAlone]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=be_alone, args=(config, device, there), daemon=True)
    with environment(env):
        process.start()
    there.close()
    try:
        received(here)
        yield MlxLmAlone(here)
    finally:
        here.close()
        process.join(10)
        process.kill()


def be_alone(config: Mapping[str, Any], device: str, pipe: Connection) -> None:
    try:
        model = whole_model(config, device)
        pipe.send("ready")
        while True:
            prompts, tokens = pipe.recv()
            pipe.send(by_step(model, prompts[0], tokens) if len(prompts) == 1 else by_batch(model, prompts, tokens))
    except EOFError:
        return  # the parent has closed its end
    except Exception as error:  # noqa: BLE001  # the parent raises it
        pipe.send(RuntimeError(f"{ALONE}: {error!r}"))


def whole_model(config: Mapping[str, Any], device: str) -> Any:
    from mlx.utils import tree_flatten
    from mlx_lm.models import qwen3

    choose(device)
    arguments: Any = qwen3.ModelArgs
    model = qwen3.Model(arguments.from_dict(dict(config)))
    flat: Any = tree_flatten(model.parameters())
    fill(model, [name for name, _ in flat])
    model.eval()
    return model


def by_step(model: Any, prompt: Sequence[int], tokens: int) -> Sequence[Answered]:
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    began, ids, times = time.perf_counter(), [], []
    for token, _ in generate_step(mx.array(list(prompt)), model, max_tokens=tokens):
        ids.append(int(token))
        times.append(time.perf_counter() - began)
    return [Answered(ids, times)]


def by_batch(model: Any, prompts: Sequence[Sequence[int]], tokens: int) -> Sequence[Answered]:
    from mlx_lm.generate import BatchGenerator

    began = time.perf_counter()
    batch: Any = BatchGenerator(model, completion_batch_size=len(prompts), prefill_batch_size=len(prompts))
    numbers = batch.insert([list(prompt) for prompt in prompts], [tokens] * len(prompts))
    ids: dict[int, list[int]] = {number: [] for number in numbers}
    times: dict[int, list[float]] = {number: [] for number in numbers}
    while replies := batch.next_generated():
        for reply in replies:
            ids[reply.uid].append(reply.token)
            times[reply.uid].append(time.perf_counter() - began)
    batch.close()
    return [Answered(ids[number], times[number]) for number in numbers]


# ---- Rounds


@dataclass(frozen=True, slots=True)
class Took:
    """steps_s: between tokens, of all users."""

    tokens_per_s: float
    steps_s: Sequence[float]
    first: Sequence[int]  # the first user's ids


Round = Mapping[str, Mapping[int, Took]]
"""By system, and users."""


def one_round(systems: Mapping[str, Answers], prompts: Mapping[int, Sequence[Sequence[int]]], tokens: int) -> Round:
    """Everybody in turn for each number of users."""
    taken: dict[str, dict[int, Took]] = {name: {} for name in systems}
    for users, asked in prompts.items():
        for name, system in systems.items():
            taken[name][users] = took(system.answer(asked, tokens))
    return taken


def took(answers: Sequence[Answered]) -> Took:
    """Of the time in which all had begun and none had ended; of all of it where there is no such time."""
    first, last = max(one.times[0] for one in answers), min(one.times[-1] for one in answers)
    if last <= first:
        first, last = min(one.times[0] for one in answers), max(one.times[-1] for one in answers)
    count = sum(1 for one in answers for at in one.times if first < at <= last)
    steps = [after - at for one in answers for at, after in zip(one.times, one.times[1:], strict=False)]
    return Took(count / (last - first), steps, answers[0].tokens)


def report(rounds: Sequence[Round]) -> dict[str, Any]:
    """Prints everything; returns the medians."""
    figures: dict[str, Any] = {}
    print(f"{len(rounds)} rounds; quartiles")
    for name, by_users in rounds[0].items():
        figures[name] = {}
        for users in by_users:
            rates = [one[name][users].tokens_per_s for one in rounds]
            steps = [1e3 * step for one in rounds for step in one[name][users].steps_s]
            figures[name][f"{users}_users_tokens_per_s"] = median(rates)
            figures[name][f"{users}_users_token_ms"] = median(steps)
            print(f"  {name:14} {users:3} users  {shown(rates)} tokens/s   {shown(steps)} ms a token", flush=True)
    report_texts(rounds[0])
    report_wanted(rounds)
    return figures


def shown(values: Sequence[float]) -> str:
    quarters = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    return "{:8.2f} {:8.2f} {:8.2f}".format(*quarters)


def report_texts(one: Round) -> None:
    alone_by_users = one[ALONE]
    reference = alone_by_users[min(alone_by_users)].first
    for name, by_users in one.items():
        for users, taken in by_users.items():
            pairs = zip(taken.first, reference, strict=False)
            same = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), len(reference))
            print(f"  {name:14} {users:3} users: the first {same} of {len(reference)} tokens are mlx-lm's")


def report_wanted(rounds: Sequence[Round]) -> None:
    def rate(one: Round, name: str, users: int) -> float:
        return one[name][users].tokens_per_s

    wanted: list[tuple[str, float, Sequence[tuple[str, int]], Callable[[Round], float]]] = [
        (
            "one user on 2, of mlx-lm alone",
            0.85,
            [("ring of 2", 1)],
            lambda r: rate(r, "ring of 2", 1) / rate(r, ALONE, 1),
        ),
        (
            "one user on 4, of mlx-lm alone",
            0.70,
            [("ring of 4", 1)],
            lambda r: rate(r, "ring of 4", 1) / rate(r, ALONE, 1),
        ),
        (
            "four users on 4, of one user",
            4.0,
            [("ring of 4", 1), ("ring of 4", 4)],
            lambda r: rate(r, "ring of 4", 4) / rate(r, "ring of 4", 1),
        ),
        (
            "sixteen users on 4, of mlx-lm's batch",
            1.0,
            [("ring of 4", 16)],
            lambda r: rate(r, "ring of 4", 16) / rate(r, ALONE, 16),
        ),
    ]
    for name, least, needed, ratio in wanted:
        if all(users in rounds[0].get(system, {}) for system, users in needed):
            ratios = [ratio(one) for one in rounds]
            verdict = "met" if median(ratios) >= least else "NOT met"
            print(f"  {name:38} {shown(ratios)}   wanted {least}: {verdict}")


if __name__ == "__main__":
    main()
    leave(0)
