"""`make chaos`: real members that answer all the time, while their processes are killed, stopped and started again, and
their cables cut.

Every answer is compared with the one that the undisturbed ring gave. What comes of it is one table: `chaos_report.py`.
Each member has a network of its own where that can be made (Linux, root); elsewhere nothing is cut.

    python -m bench.chaos --minutes 2 --members 3 --seed 7 --only udp,kill
"""

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import psutil

from bench.chaos_report import Blow, ChaosReport, ReadAnswer, Weight
from tests.e2e.conftest import form
from tests.support.cluster import Cluster, ClusterMember, kill, kill_all
from tests.support.machines import machines
from tests.support.natlab import Cut, Space, missing
from tests.support.smollm2 import smollm2_folder
from tests.support.trouble import Reader, are_all_ready, cast, read_at, standing_still

NAMES = ("ada", "bob", "cyd", "dan", "eve")
PROMPTS = ("Once upon a time", "The sea was calm and", "A recipe for bread begins", "In the year 1900", "My cat")
TOKENS = 40
CALM_S = (1.0, 8.0)  # from everybody ready to the next blow
MOST_KILLS = 4  # of one member's sidecar, each soon after the last: its server starts it again five times in a row
STEADY_S = 60.0  # a sidecar that ran so long may end as often again
HASTE = 0.2  # how often the next blow does not wait until everybody is ready
STOPS_S = (2.0, 10.0, 25.0, 40.0)
CUTS_S = (3.0, 10.0, 20.0)
OFF_S = (0.0, 3.0, 10.0)
READY_DEADLINE_S = 150.0
LOOK_S = 0.1

KINDS = ("kill", "kill", "stop", "stop", "restart")  # as often as each is named
CUTS = ("udp", "network", "pair")

Strike = Callable[[str], tuple[str, tuple[str, ...]]]


def main() -> None:
    parser = argparse.ArgumentParser(description="random kills, stops, restarts and cuts on real members")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--members", type=int, default=0, help="3 to 5; drawn from the seed unless given")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", help=f"of these, with commas: {', '.join(dict.fromkeys(KINDS + CUTS))}")
    asked = parser.parse_args()
    only = frozenset(filter(None, asked.only.split(",")))
    if unknown := only - {*KINDS, *CUTS}:
        parser.error(f"nothing is called {', '.join(sorted(unknown))}")
    chance = random.Random(asked.seed)
    count = asked.members or chance.choice((3, 4, 5))
    folder = Path(tempfile.mkdtemp(prefix="kafila-chaos-"))
    print(f"seed {asked.seed}, {count} members, {asked.minutes:g} minutes, logs in {folder}", flush=True)
    with machines(*NAMES[:count], folder=smollm2_folder(), below=folder) as (cluster, spaces):
        model = form(cluster, str(smollm2_folder()), "--concurrency", str(count))["vehicle"]["name"]
        Chaos(cluster, spaces, model, chance, only).run(60 * asked.minutes)


class Chaos:
    """Clients at every member, and one blow after another. `only`: of these kinds; empty: of all."""

    def __init__(
        self, cluster: Cluster, spaces: dict[str, Space], model: str, chance: random.Random, only: Collection[str]
    ) -> None:
        self._cluster = cluster
        self._members = {member.name: member for member in cluster.members}
        self._spaces = spaces
        self._model = model
        self._chance = chance
        self._strikes = self._menu(only)
        self._killed: dict[str, list[float]] = {}
        self._stopping = threading.Event()
        self._report = ChaosReport()

    def run(self, seconds: float) -> None:
        self._report.right = self._undisturbed()
        clients = [threading.Thread(target=self._client, args=(name,), daemon=True) for name in self._members]
        for client in clients:
            client.start()
        self._weigh()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._strike()
        self._stopping.set()
        for client in clients:
            client.join()
        self._until_ready()
        self._weigh()
        self._report.show(smollm2_folder())

    def _undisturbed(self) -> dict[str, str]:
        """What each prompt is answered with."""
        answers = {}
        for prompt in PROMPTS:
            (reader,) = read_at(self._cluster.members[:1], [prompt], self._model, TOKENS)
            reader.join()
            if reader.error:
                raise SystemExit(f"the undisturbed ring did not answer: {reader.error}")
            answers[prompt] = reader.text
        return answers

    def _client(self, name: str) -> None:
        prompts = random.Random(name)
        while not self._stopping.is_set():
            began = time.monotonic()
            reader = Reader(self._members[name], self._model, prompts.choice(PROMPTS), TOKENS)
            reader.run()
            told = ReadAnswer(
                name, reader.prompt, reader.text, reader.error, began, time.monotonic(), reader.longest_pause
            )
            self._report.answers.append(told)
            if reader.error:
                time.sleep(1.0)

    # ---- Blows

    def _strike(self) -> None:
        time.sleep(self._chance.uniform(*CALM_S))
        name = self._chance.choice(list(self._members))
        began = time.monotonic()
        what, dead = self._chance.choice(self._strikes)(name)
        ended = time.monotonic()
        ready_s = None if self._chance.random() < HASTE else self._until_ready()
        self._report.blows.append(Blow(what, name, began, ended, ready_s, dead))
        said = "" if ready_s is None else f"; ready again {ready_s:.1f} s later"
        print(f"{time.strftime('%H:%M:%S')}  {what}: {name}, {ended - began:.1f} s{said}", flush=True)

    def _until_ready(self) -> float:
        began = time.monotonic()
        while not are_all_ready(self._members.values()):
            if time.monotonic() - began > READY_DEADLINE_S:
                states = {name: self._state(member) for name, member in self._members.items()}
                self._report.faults.append(f"not ready within {READY_DEADLINE_S:.0f} s: {states}")
                break
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def _state(self, member: ClusterMember) -> str:
        try:
            return str(member.session().get("state"))
        except OSError as error:
            return str(error)

    def _menu(self, only: Collection[str]) -> list[Strike]:
        """What may happen to a machine; each says what it was, and whose processes it ended."""
        strikes: dict[str, Strike] = {
            "kill": self._kill,
            "stop": self._stop,
            "restart": self._restart,
            "udp": self._cut_udp,
            "network": self._cut_all,
            "pair": self._part,
        }
        named = [name for name in (*KINDS, *(CUTS if self._spaces else ())) if not only or name in only]
        if not named:
            raise SystemExit(f"nothing is cut here: {missing()}")
        return [strikes[name] for name in named]

    def _kill(self, name: str) -> tuple[str, tuple[str, ...]]:
        if not self._comes_up_again(name):
            return self._restart(name)
        session = self._members[name].session()
        decides = "stages" in session and name in cast(session)[:2]
        with suppress(StopIteration, OSError):
            kill(self._members[name].sidecar_pid())
        return ("host or head killed" if decides else "stage killed"), (name,)

    def _comes_up_again(self, name: str) -> bool:
        """Whether its server would start its sidecar once more; if so, another kill is counted."""
        now, kills = time.monotonic(), self._killed.setdefault(name, [])
        if kills and now - kills[-1] > 2 * STEADY_S:
            kills.clear()
        if len(kills) >= MOST_KILLS:
            return False
        kills.append(now)
        return True

    def _restart(self, name: str) -> tuple[str, tuple[str, ...]]:
        self._killed.pop(name, None)
        kill_all([self._members[name]])
        time.sleep(self._chance.choice(OFF_S))
        self._cluster.start_again(self._members[name])
        return "started again", (name,)

    def _stop(self, name: str) -> tuple[str, tuple[str, ...]]:
        seconds = self._chance.choice(STOPS_S)
        with standing_still(self._members[name]):
            time.sleep(seconds)
        return f"stood still {seconds:.0f} s", ()

    def _cut_udp(self, name: str) -> tuple[str, tuple[str, ...]]:
        with self._spaces[name].cut(Cut.UDP):
            time.sleep(self._chance.choice(CUTS_S))
        return "no UDP", ()

    def _cut_all(self, name: str) -> tuple[str, tuple[str, ...]]:
        seconds = self._chance.choice(CUTS_S)
        with self._spaces[name].cut(Cut.ALL):
            time.sleep(seconds)
        return f"no network {seconds:.0f} s", ()

    def _part(self, name: str) -> tuple[str, tuple[str, ...]]:
        other = self._chance.choice([one for one in self._spaces if one != name])
        with self._spaces[name].cut_from(self._spaces[other]):
            time.sleep(self._chance.choice(CUTS_S))
        return "a pair parted", ()

    # ---- What it takes

    def _weigh(self) -> None:
        """The processes of each member, all together."""
        for name, member in self._members.items():
            rss_bytes = descriptors = 0
            held_bytes = int(member.session().get("reserved_memory_bytes", 0))
            for pid in member.pids():
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    rss_bytes += process.memory_info().rss
                    descriptors += process.num_fds()
            self._report.weights.setdefault(name, []).append(Weight(rss_bytes, held_bytes, descriptors))


if __name__ == "__main__":
    main()
