"""How long a client waits for the first word of a session's answer, beside stock's own runner on the same server.

    python -m bench.first_token [--words 8 128 384] [--rounds 5] [--record]

One member that is not the head is asked by HTTP for two tokens, of the session's model and of stock's in turn, so that
a drifting machine hits both alike; each prompt begins with a number of its own, so that nothing that was computed
before helps. The weights are not the same: SmolLM2 in f32 over three members here, four bits in stock's file.

Printed: medians over the rounds, in milliseconds from the request to the first line with text, and the prompt's tokens.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.record import Figures, add_record_option, record
from tests.clients.conftest import STOCK, make_stock
from tests.e2e.conftest import NAMES, SMOLLM2, form
from tests.support.cluster import ClusterMember, make_cluster
from tests.support.smollm2 import smollm2_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, nargs="+", default=[8, 128, 384])
    parser.add_argument("--rounds", type=int, default=5)
    add_record_option(parser)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kafila-bench-") as below,
        make_cluster(*NAMES, folders=(smollm2_folder(),), below=Path(below)) as cluster,
    ):
        session = form(cluster, SMOLLM2)
        head = next(stage["member"] for stage in session["stages"] if stage.get("head"))
        member = next(member for member in cluster.members if member.name != head)
        model = str(session["vehicle"]["name"])
        make_stock(member, member.request("/api/show", {"model": model})[1]["parameters"])
        figures = {str(words): compare(member, model, words, options.rounds) for words in options.words}
    if options.record:
        record("first token", {"rounds": options.rounds, **figures})


def compare(member: ClusterMember, model: str, words: int, rounds: int) -> Figures:
    """Of prompts of so many words."""
    taken: dict[str, list[float]] = {model: [], STOCK: []}
    tokens = 0
    for number in range(rounds + 1):
        for one, seconds in taken.items():
            first_s, tokens = first_word(member, one, f"{words}{number}: " + "camel " * words)
            if number:  # the one before is for loading
                seconds.append(first_s)
    ours_s, stocks_s = (median(seconds) for seconds in taken.values())
    print(f"{tokens:5} tokens: session {ours_s * 1e3:7.1f} ms, stock {stocks_s * 1e3:7.1f} ms", flush=True)
    return {"tokens": tokens, "session_s": ours_s, "stock_s": stocks_s}


def first_word(member: ClusterMember, model: str, prompt: str) -> tuple[float, int]:
    """Seconds until it came, and how many tokens the prompt had."""
    body = {"model": model, "prompt": prompt, "options": {"num_predict": 2, "temperature": 0}}
    began = time.perf_counter()
    lines = [(time.perf_counter() - began, line) for line in member.lines("/api/generate", body, timeout_s=300)]
    came = next(at for at, line in lines if line["response"])
    return came, int(lines[-1][1]["prompt_eval_count"])


if __name__ == "__main__":
    main()
