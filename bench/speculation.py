"""Tokens a second with and without guesses: four kinds of text, hops of 0, 5 and 25 ms, rings of two and three.

    python -m bench.speculation [--dtype f32] [--tokens 96] [--rounds 3] [--hops 0 5 25] [--stages 2 3]
                                [--kinds chat copying] [--draft BLOCKS] [--single] [--record]

One user, greedy, SmolLM2's own text. The members are processes of this machine, linked over QUIC; their datagrams are
held back for the hop's time. With and without guesses in turn, so that a drifting machine hits both alike; both have
to give the same text where the ring says that its steps are exact. The kinds: a summary of a text, code that is given
back with a change, free chat, and a text that is copied, longer than the answer. An answer's first words are given, or
so small a model would talk about the task instead; and the code is a file of settings, since of functions it writes
others. Wanted on hops of 25 ms: copying 5 times and a code edit 1.8 times as quick as without, chat 0.97 times.

Seen on three stages and hops of 25 ms, two cores: copying 5.8 tokens/s without and 32.6 with guesses (5.6 times), the
edit 6.0 and 33.8 (5.6), the summary 5.8 and 32.3 (5.5), chat 5.9 and 6.2 (1.05); the same texts. On two stages there:
copying 5.3 times, the edit 5.2, the summary 5.2, chat 1.06. With hops of 0 and 5 ms, on two and three stages: copying
4.7 to 4.8 times, the edit 4.1 to 4.7, the summary 4.5 to 4.9, chat 0.94 to 1.11, the same texts.

With `--draft` a model of the first BLOCKS blocks guesses on the head too. With `--single` stages say that no step of
several tokens is exact, as some devices do, so that guesses run ahead or not at all. How many guesses of the last round
were right, of how many, and how many of those ran ahead and were a draft's, is told beside it.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tokenizers import Tokenizer

from bench.members import Answered, RingOfProcesses, RingShape, ring_of_processes
from bench.record import Figures, add_record_option, record
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving.drafting.model import DraftModel
from tests.exact.shards import load_shard
from tests.support.smollm2 import cut_down, smollm2_folder

CONTEXT_TOKENS = 1024
GUESSES = 7
MEASURED: dict[str, Any] = {"block_s": {"1": 0.001}, "head_s": {"1": 0.005}, "overhead_s": 0.001, "rtt_s": 0.001}
WANTED = {"copying": 5.0, "code edit": 1.8, "chat": 0.97}
TEXT = (
    "The river Alder rises in the hills above Wexcombe and flows south for sixty miles to the sea at Port Ellen. For "
    "two hundred years its mills ground the flour of three counties, until the railway came and the mills fell silent. "
    "Today walkers follow the old towpath from lock to lock, and herons stand where the barges used to lie. In spring "
    "the water meadows flood, and the farmers of Wexcombe drive their cattle to the higher ground. In summer children "
    "swim below the old bridge, and in autumn the leaves of the great oaks float down to the sea."
)
CODE = """HOST = "river.example"
PORT = 8080
USERS = ["anna", "ben", "clara", "david"]
TIMEOUT_SECONDS = 30
RETRIES = 5
LOG_FILE = "/var/log/mill.log"
LOG_LEVEL = "info"
CACHE_MEGABYTES = 256
LANGUAGES = ["en", "de", "fr", "it"]
START_PAGE = "/index.html"
"""
KINDS = {
    "summary": (f"Summarise this text in three sentences:\n\n{TEXT}", "The river Alder rises in"),
    "code edit": (
        f"Change PORT to 9090 and give back the whole file:\n\n```python\n{CODE}```",
        '```python\nHOST = "river.example"\nPORT = 9090\n',
    ),
    "chat": ("Write a story about a lighthouse keeper who finds a letter.", "Once"),
    "copying": (f"Repeat this text word for word:\n\n{TEXT}", "The river Alder rises in the hills above"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hops", type=float, nargs="+", default=[0.0, 5.0, 25.0], metavar="MS")
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--draft", type=int, default=0, metavar="BLOCKS")
    parser.add_argument("--single", action="store_true")
    add_record_option(parser)
    options = parser.parse_args()
    folder = smollm2_folder(dtype=options.dtype)
    figures: dict[str, Figures] = {}
    heading = f"{'ring':>4} {'hop ms':>6}  {'text':10} {'plain /s':>8} {'guesses /s':>10} {'times':>6}  same text"
    print(heading + "  right/made (ahead, drafted)")
    for stages in options.stages:
        for hop_ms in options.hops:
            with ring_of_processes(shape(folder, stages, hop_ms / 1e3, options)) as ring:
                for kind in options.kinds:
                    figures[f"{kind}, ring of {stages}, {hop_ms:g} ms"] = compared(
                        ring, kind, prompt(folder, kind), options, f"{stages:>4} {hop_ms:>6g}"
                    )
    if options.record:
        record(f"speculation {options.dtype}", {"tokens": options.tokens, "rounds": options.rounds, **figures})


def compared(ring: RingOfProcesses, kind: str, ids: Sequence[int], options: argparse.Namespace, where: str) -> Figures:
    """Both ways in turn; prints a line."""
    ring.answer([ids], 8)
    rounds = [
        [ring.answer([ids], options.tokens, guesses=most)[0] for most in (0, GUESSES)] for _ in range(options.rounds)
    ]
    plain, guessing = (median(map(rate, answers)) for answers in zip(*rounds, strict=True))
    is_same = all(one.tokens == other.tokens for one, other in rounds)
    wanted = f"  wanted {WANTED[kind]}" if kind in WANTED else ""
    last = ring.record()
    right, made, ahead, drafted = (last[f"guesses{name}"] for name in ("_right", "", "_ahead", "_drafted"))
    told = f"{guessing / plain:6.2f}  {is_same}  {right}/{made} ({ahead}, {drafted})"
    print(f"{where}  {kind:10} {plain:8.1f} {guessing:10.1f} {told}{wanted}", flush=True)
    return {"plain_tokens_per_s": plain, "guesses_tokens_per_s": guessing, "times": guessing / plain}


def rate(answer: Answered) -> float:
    """Tokens a second after the first one."""
    return (len(answer.tokens) - 1) / (answer.times[-1] - answer.times[0])


def prompt(folder: Path, kind: str) -> list[int]:
    """The ids of a question and of the first words of its answer."""
    asked, begun = KINDS[kind]
    text = f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{begun}"
    return list(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text, add_special_tokens=False).ids)


def shape(folder: Path, stages: int, hop_s: float, options: argparse.Namespace) -> RingShape:
    config = json.loads((folder / "config.json").read_text())
    blocks = config["num_hidden_layers"]
    cuts = [round(blocks * place / stages) for place in range(stages + 1)]
    assert all(start < end for start, end in pairwise(cuts))
    return RingShape(
        cuts=cuts,
        make_shard=partial(stage_of, folder, options.single),
        make_draft=partial(draft_of, folder, options.draft) if options.draft else None,
        vocabulary=config["vocab_size"],
        context_tokens=CONTEXT_TOKENS,
        concurrency=1,
        measured=MEASURED,
        env=[{"OPENBLAS_NUM_THREADS": "1"}] * stages,
        hop_s=hop_s,
    )


def stage_of(folder: Path, is_single: bool, start: int, end: int, head: bool) -> Shard:
    shard = load_shard(folder, start, end, head, quick=True)
    if not is_single:
        shard.learn_steps()
    return shard


def draft_of(folder: Path, blocks: int) -> DraftModel:
    """The first blocks of the same model, with its own head."""
    return DraftModel(load_shard(cut_down(folder, blocks), 0, blocks, True), None)


if __name__ == "__main__":
    main()
