"""`make chaos`: real members that answer all the time, while their processes are killed, stopped, restarted and cut.

Every answer is compared with the one that the undisturbed ring gave. Reported are how many answers were right, ended
with an error or were wrong, the pauses that their readers saw, and what the processes' memory and descriptors did. Runs
in a network of its own where that can be made (Linux, root); elsewhere nothing is cut.

    python -m bench.chaos --minutes 2 --members 3 --seed 7
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.conftest import SMOLLM2, create, start, until
from tests.support.cluster import Cluster, ClusterMember, kill, make_cluster
from tests.support.smollm2 import smollm2_folder

NAMES = ("ada", "bob", "cyd", "dan", "eve")
PROMPTS = ("Once upon a time", "The sea was calm and", "A recipe for bread begins", "In the year 1900", "My cat")
TOKENS = 40
CALM_S = (8.0, 20.0)  # between two faults
STOPS_S = (2.0, 10.0, 25.0, 40.0)
CUTS_S = (3.0, 10.0, 20.0)
CLIENT_DEADLINE_S = 300.0
FORM_DEADLINE_S = 180.0
IN_OWN_NETWORK = "KAFILA_CHAOS_NETWORK"
TABLE = "kafila_chaos"


@dataclass(slots=True)
class Outcomes:
    """All that clients saw. `errors`: their sentences."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    pauses_s: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Weight:
    """What one member's sidecar takes."""

    rss_bytes: int
    descriptors: int


def main() -> None:
    parser = argparse.ArgumentParser(description="random kills, stops, restarts and cuts on real members")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--members", type=int, default=0, help="3 to 5; drawn from the seed unless given")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    _enter_own_network()
    chance = random.Random(asked.seed)
    count = asked.members or chance.choice((3, 4, 5))
    print(f"seed {asked.seed}, {count} members, {asked.minutes:g} minutes", flush=True)
    with make_cluster(*NAMES[:count], folders=(smollm2_folder(),), below=Path(tempfile.mkdtemp())) as cluster:
        form(cluster)
        Chaos(cluster, chance).run(60 * asked.minutes)


def _enter_own_network() -> None:
    """Begins anew in a network namespace of its own, where loopback may be cut."""
    if IN_OWN_NETWORK in os.environ or sys.platform != "linux" or os.geteuid() != 0:
        return
    if shutil.which("unshare") is None or shutil.which("nft") is None:
        print("nothing will be cut: unshare and nft are not here", flush=True)
        return
    again = f"ip link set lo up && exec {sys.executable} -m bench.chaos {' '.join(sys.argv[1:])}"
    os.execvpe("unshare", ["unshare", "-n", "sh", "-c", again], {**os.environ, IN_OWN_NETWORK: "1"})


class Chaos:
    """Clients at every member, and one fault after another."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._members = {member.name: member for member in cluster.members}
        self._stopping = threading.Event()
        self._heard = Outcomes()
        self._right: dict[str, str] = {}
        self._weights: dict[str, list[Weight]] = {name: [] for name in self._members}

    def run(self, seconds: float) -> None:
        first = next(iter(self._members.values()))
        self._right = {prompt: "".join(text for text, _ in ask(first, prompt)) for prompt in PROMPTS}
        clients = [threading.Thread(target=self._client, args=(name,), daemon=True) for name in self._members]
        for client in clients:
            client.start()
        end = time.monotonic() + seconds
        self._weigh()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self._chance.uniform(*CALM_S)))
            if time.monotonic() < end:
                self._fault()
            self._weigh()
        self._stopping.set()
        for client in clients:
            client.join(30)
        self._report()

    # ---- Clients

    def _client(self, name: str) -> None:
        prompts = random.Random(name)
        while not self._stopping.is_set():
            prompt = prompts.choice(PROMPTS)
            try:
                self._hear(prompt, ask(self._members[name], prompt))
            except (OSError, ValueError, LookupError, urllib.error.URLError) as error:
                with self._heard.lock:
                    self._heard.errors[_sentence(error)] += 1
                time.sleep(1.0)

    def _hear(self, prompt: str, pieces: Iterator[tuple[str, float]]) -> None:
        text, longest_s = "", 0.0
        for piece, waited_s in pieces:
            text, longest_s = text + piece, max(longest_s, waited_s)
        with self._heard.lock:
            self._heard.pauses_s.append(longest_s)
            if text == self._right[prompt]:
                self._heard.right += 1
            else:
                self._heard.wrong.append(f"{prompt!r}: {text!r}")

    # ---- Faults

    def _fault(self) -> None:
        name = self._chance.choice(list(self._members))
        kinds: list[Callable[[str], str]] = [self._stop, self._stop, self._kill_sidecar, self._restart]
        if IN_OWN_NETWORK in os.environ:
            kinds += [self._cut_udp, self._cut_all]
        began = time.monotonic()
        what = self._chance.choice(kinds)(name)
        print(f"{time.strftime('%H:%M:%S')}  {what}; {time.monotonic() - began:.0f} s", flush=True)

    def _stop(self, name: str) -> str:
        seconds = self._chance.choice(STOPS_S)
        pid = self._sidecar(name)
        if pid is None:
            return f"{name} has no sidecar to stop"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        return f"{name} stood still for {seconds:g} s"

    def _kill_sidecar(self, name: str) -> str:
        if (pid := self._sidecar(name)) is not None:
            kill(pid)
        return f"{name}'s sidecar was killed"

    def _restart(self, name: str) -> str:
        """Server and sidecar die; the server is started again after a while."""
        pid, member = self._sidecar(name), self._members[name]
        for victim in (pid, member.process.popen.pid):
            if victim is not None:
                kill(victim)
        member.process.popen.wait()
        time.sleep(self._chance.choice((0.5, 3.0, 10.0)))
        self._members[name] = self._cluster.start_member(name)
        return f"{name} was killed and started again"

    def _cut_udp(self, name: str) -> str:
        return self._cut(name, "udp", tcp=False)

    def _cut_all(self, name: str) -> str:
        return self._cut(name, "network", tcp=True)

    def _cut(self, name: str, what: str, *, tcp: bool) -> str:
        pid, seconds = self._sidecar(name), self._chance.choice(CUTS_S)
        if pid is None:
            return f"{name} has no sidecar to cut off"
        with dropped(ports_of(pid, tcp=tcp)):
            time.sleep(seconds)
        return f"{name} had no {what} for {seconds:g} s"

    def _sidecar(self, name: str) -> int | None:
        with suppress(OSError, StopIteration):
            return self._members[name].sidecar_pid()
        return None

    # ---- What comes of it

    def _weigh(self) -> None:
        for name in self._members:
            if (pid := self._sidecar(name)) is not None:
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    self._weights[name].append(Weight(process.memory_info().rss, process.num_fds()))

    def _report(self) -> None:
        heard, pauses = self._heard, sorted(self._heard.pauses_s)
        print(f"answers: {heard.right} right, {len(heard.wrong)} wrong, {heard.errors.total()} ended with an error")
        for sentence, count in heard.errors.most_common(12):
            print(f"  {count} x {sentence}")
        for wrong in heard.wrong[:5]:
            print(f"  wrong: {wrong}")
        if pauses:
            late = pauses[min(len(pauses) - 1, int(0.99 * len(pauses)))]
            print(f"longest pause in an answer: median {statistics.median(pauses):.2f} s, 99th percentile {late:.2f} s")
        for name, weights in self._weights.items():
            if weights:
                first, last = weights[0], weights[-1]
                print(
                    f"{name}: RSS {first.rss_bytes >> 20} to {last.rss_bytes >> 20} MiB,"
                    f" descriptors {first.descriptors} to {last.descriptors}"
                )


def form(cluster: Cluster) -> None:
    """A session of all members, none of whom it requires."""
    first, *others = cluster.members
    wanted = ("--members", str(len(cluster.members)), "--context", "1024", "--concurrency", "2")
    code, creating = create(first, SMOLLM2, *wanted)
    joining = [start(member, "session", "join", code, "--yes") for member in others]
    for command in (creating, *joining):
        command.communicate(timeout=FORM_DEADLINE_S)
    until(lambda: all(member.session().get("state") == "ready" for member in cluster.members), FORM_DEADLINE_S)


def ask(member: ClusterMember, prompt: str) -> Iterator[tuple[str, float]]:
    """The pieces of an answer, each with the seconds that its reader waited for it.

    Raises LookupError for an answer that ends with an error, or for want of a session.
    """
    session = member.session()
    if "vehicle" not in session:
        raise LookupError("this member is in no session")
    options = {"temperature": 0, "num_predict": TOKENS}
    body = {"model": session["vehicle"]["name"], "prompt": prompt, "raw": True, "options": options}
    before, is_done = time.monotonic(), False
    for line in member.lines("/api/generate", body, timeout_s=CLIENT_DEADLINE_S):
        if "error" in line:
            raise LookupError(line["error"])
        is_done = line.get("done", False)
        now = time.monotonic()
        yield line.get("response", ""), now - before
        before = now
    if not is_done:
        raise LookupError("the answer ended without a word")


def _sentence(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        with error:
            read: Any = error.read().decode(errors="replace")
        with suppress(ValueError):
            read = json.loads(read).get("error", read)
        return f"HTTP {error.code}: {read}"[:160]
    return (str(error) or type(error).__name__)[:160]


def ports_of(pid: int, *, tcp: bool) -> list[str]:
    """This process' own ports, as nft's matches."""
    kinds = ("udp", "tcp") if tcp else ("udp",)
    found = {(kind, one.laddr.port) for kind in kinds for one in psutil.Process(pid).net_connections(kind) if one.laddr}
    return [f"{kind} {side} {port}" for kind, port in sorted(found) for side in ("sport", "dport")]


@contextmanager
def dropped(matches: list[str]) -> Iterator[None]:
    """Nothing to or from these ports passes meanwhile."""
    rules = "".join(f"    {match} drop\n" for match in matches)
    chain = f"table inet {TABLE} {{\n  chain cut {{\n    type filter hook output priority 0;\n{rules}  }}\n}}\n"
    subprocess.run(["nft", "-f", "-"], input=chain, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "inet", TABLE], check=True)


if __name__ == "__main__":
    main()
