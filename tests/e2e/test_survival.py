"""Ten blows to one session while everybody reads an answer: texts are as if nothing had been, and all return.

Answers that were typed at a machine whose processes died end with an error; all others go on. The members are the same
all the time, and who plays which part is looked up before each blow.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import NAMES, form, until
from tests.support.cluster import Cluster, ClusterMember, kill, kill_all
from tests.support.machines import machines
from tests.support.natlab import Cut, Space, missing
from tests.support.smollm2 import smollm2_folder
from tests.support.ties import is_same_or_tie
from tests.support.trouble import Cast, Reader, are_all_ready, cast, read_at, standing_still, until_read

PROMPTS = ("Once upon a time", "The sea was calm and", "In the year 1900", "A recipe for bread begins")
TOKENS = 36
BACK_S = 75.0  # from the blow's end until all are ready again, on a busy machine

needs_cables = pytest.mark.skipif(bool(missing()), reason=missing() or "none")


@dataclass
class Stricken:
    """A session of everybody that is ready, and what each prompt is answered with."""

    cluster: Cluster
    spaces: dict[str, Space]
    model: str
    right: dict[str, str]

    def member(self, name: str) -> ClusterMember:
        return next(member for member in self.cluster.members if member.name == name)

    def cast(self) -> Cast:
        return cast(self.cluster.members[0].session())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stricken]:
    names = (*NAMES, "dan")
    with machines(*names, folder=smollm2_folder(), below=tmp_path_factory.mktemp("scene")) as (cluster, spaces):
        model = form(cluster, str(smollm2_folder()), "--concurrency", str(len(names)))["vehicle"]["name"]
        readers = read_at(cluster.members, PROMPTS, model, TOKENS)
        for reader in readers:
            reader.join()
            assert reader.error == ""
        yield Stricken(cluster, spaces, model, {reader.prompt: reader.text for reader in readers})


# ---- The blows: each returns the machines whose processes it ended

Blow = Callable[[Stricken, Cast], set[str]]


def killed(scene: Stricken, *names: str) -> set[str]:
    """Their sidecars are gone at once; their servers start them again."""
    for pid in [scene.member(name).sidecar_pid() for name in names]:
        kill(pid)
    return set(names)


def restarted(scene: Stricken, name: str) -> set[str]:
    """The machine loses power, and comes up again."""
    kill_all([scene.member(name)])
    scene.cluster.start_again(scene.member(name))
    return {name}


def stopped(scene: Stricken, name: str, seconds: float) -> set[str]:
    with standing_still(scene.member(name)):
        time.sleep(seconds)
    return set()


def cut_off(scene: Stricken, name: str, cut: Cut, seconds: float) -> set[str]:
    with scene.spaces[name].cut(cut):
        time.sleep(seconds)
    return set()


def parted(scene: Stricken, one: str, other: str, seconds: float) -> set[str]:
    with scene.spaces[one].cut_from(scene.spaces[other]):
        time.sleep(seconds)
    return set()


BLOWS: dict[str, Blow] = {
    "a stage is killed": lambda scene, cast: killed(scene, cast.stage),
    "the head is killed": lambda scene, cast: killed(scene, cast.head),
    "the host and a stage are killed": lambda scene, cast: killed(scene, cast.host, cast.stage),
    "the host is started again": lambda scene, cast: restarted(scene, cast.host),
    "a stage stands still for 2 s": lambda scene, cast: stopped(scene, cast.stage, 2),
    "the head stands still for 10 s": lambda scene, cast: stopped(scene, cast.head, 10),
    "a stage stands still for 25 s": lambda scene, cast: stopped(scene, cast.stage, 25),
}
CUTS: dict[str, Blow] = {
    "a stage has no UDP for 10 s": lambda scene, cast: cut_off(scene, cast.stage, Cut.UDP, 10),
    "the host has no network for 20 s": lambda scene, cast: cut_off(scene, cast.host, Cut.ALL, 20),
    "head and stage can't reach each other for 10 s": lambda scene, cast: parted(scene, cast.head, cast.stage, 10),
}


@pytest.mark.parametrize(
    "blow",
    [
        *(pytest.param(blow, id=name) for name, blow in BLOWS.items()),
        *(pytest.param(blow, id=name, marks=needs_cables) for name, blow in CUTS.items()),
    ],
)
@pytest.mark.timeout(240)
def test_answers_when_a_machine_is_struck_then_they_go_on_and_all_are_back(
    blow: Blow, scene: Stricken, request: pytest.FixtureRequest
) -> None:
    strike(scene, request.node.callspec.id, blow, random.Random(request.node.name))


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(60))
def test_answers_when_machines_are_struck_at_sixty_random_tokens_then_they_go_on(number: int, scene: Stricken) -> None:
    blows = list((BLOWS if missing() else BLOWS | CUTS).items())
    what, blow = blows[number % len(blows)]
    strike(scene, f"{number}: {what}", blow, random.Random(number))


def strike(scene: Stricken, what: str, blow: Blow, chance: random.Random) -> None:
    members = scene.cluster.members
    until(lambda: are_all_ready(members), BACK_S, 0.1)
    readers = read_at(members, PROMPTS, scene.model, TOKENS)
    until_read(readers, chance.randint(1, TOKENS - 4))
    dead = blow(scene, scene.cast())
    for reader in readers:
        reader.join()
    report(what, readers)
    until(lambda: are_all_ready(members), BACK_S, 0.1)
    for reader in readers:
        if not (reader.member.name in dead and reader.error):
            assert reader.error == "", reader.member.name
            right = scene.right[reader.prompt]
            assert is_same_or_tie(smollm2_folder(), reader.prompt, right, reader.text), reader.member.name


def report(what: str, readers: list[Reader]) -> None:
    pauses = ", ".join(f"{one.member.name} {one.longest_pause.seconds:.1f} s" for one in readers if not one.error)
    print(f"{what}: paused {pauses}")
