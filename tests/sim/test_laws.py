"""The laws see what is wrong, and nothing else."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_sidecar.session.coordination.states import Ending, State
from tests.sidecar.session.village import Village
from tests.sim.clock import Life
from tests.sim.laws import answers_end, answers_go_on, healthy_members_go_on, healthy_members_stay, is_hopeless
from tests.sim.machines import JOIN_AGAIN
from tests.sim.world import SETTLE_S, Answer, World

CALM_AT_S = 50.0
END_S = CALM_AT_S + SETTLE_S


@dataclass
class PlayedWorld:
    """What laws of answers ask of a world in which one was asked for at ada."""

    answer: Answer
    is_hopeless: bool = False
    out_since_s: float | None = None
    settled_s: float = END_S
    schedule: Any = field(default_factory=lambda: SimpleNamespace(calm_at_s=CALM_AT_S))

    @property
    def answers(self) -> list[Answer]:
        return [self.answer]

    @property
    def machines(self) -> dict[str, Any]:
        out = self.out_since_s is not None
        return {"ada": SimpleNamespace(is_out="left" if out else "", out_since_s=self.out_since_s or 0.0)}

    def is_open(self, answer: Answer) -> bool:
        return answer.ended_s is None


def ended(at_s: float | None, error: str = "UNAVAILABLE: a member was lost", life: Life = Life.RUNS) -> Answer:
    """`life`: of its client's machine's process at the end of the run."""
    process = cast(Any, SimpleNamespace(life=life))
    return Answer("ada", (1,), 5, asked_s=20.0, ended_s=at_s, error=error, process=process)


@pytest.mark.parametrize(
    ("answer", "circumstances", "is_broken"),
    [
        (ended(30.0), {}, True),
        (ended(30.0, error=""), {}, False),
        (ended(30.0), {"is_hopeless": True}, True),  # it was not so for good then
        (ended(END_S), {"is_hopeless": True}, False),
        (ended(END_S), {}, True),
        (ended(30.0), {"out_since_s": 29.0}, False),
        (ended(30.0), {"out_since_s": 31.0}, True),
        (ended(30.0, life=Life.DEAD), {}, True),  # it died later: the dead end nothing
        (ended(None, error="", life=Life.DEAD), {}, False),
        (ended(30.0, error=JOIN_AGAIN), {}, False),
    ],
)
def test_answer_when_it_ends_with_an_error_then_only_what_had_happened_by_then_excuses_it(
    answer: Answer, circumstances: dict[str, Any], is_broken: bool
) -> None:
    assert bool(list(answers_go_on(cast(World, PlayedWorld(answer, **circumstances))))) is is_broken


def test_answer_when_it_has_no_end_then_nothing_excuses_it() -> None:
    assert list(answers_end(cast(World, PlayedWorld(ended(None), is_hopeless=True))))
    assert not list(answers_end(cast(World, PlayedWorld(ended(END_S)))))


@dataclass
class PlayedMember:
    """A machine whose part in a village's session laws look at. All of them have reached each other for so long."""

    name: str
    village: Village
    well_since_s: float | None = 0.0
    state: State = State.READY
    ending: Ending | None = None
    is_out: str = ""
    looked_at: int = 0
    has_ended: Any = None

    def __post_init__(self) -> None:
        replica = self.village[self.name].replica
        follower = SimpleNamespace(proposal="a plan", ending=self.ending)
        channel = SimpleNamespace(_replica=replica, self_name=self.name)
        self.participation = SimpleNamespace(channel=channel, driver=SimpleNamespace(follower=follower))
        self.look()

    def look(self) -> None:
        """What of the channel changes."""
        replica, channel = self.village[self.name].replica, self.participation.channel
        channel.host, channel.members, channel.is_host = replica.log.host, replica.members, replica.is_host

    @property
    def member_name(self) -> str:
        return self.name

    @property
    def reached_since_s(self) -> float | None:
        return self.well_since_s

    served_since_s = reached_since_s

    @property
    def met_since_s(self) -> dict[str, float]:
        return {} if self.well_since_s is None else dict.fromkeys(self.village.people, self.well_since_s)


def played(village: Village, **members: dict[str, Any]) -> Any:
    machines = {name: PlayedMember(name, village, **members.get(name, {})) for name in village.people}
    return SimpleNamespace(machines=machines, judged=set(), broken=[], now_s=50.0)


@pytest.mark.parametrize(
    ("anna", "is_broken"),
    [({}, True), ({"well_since_s": 45.0}, False), ({"well_since_s": None}, False), ({"is_out": "kicked"}, False)],
)
@pytest.mark.parametrize("then", ["nothing", "it is back at once", "the host is none any more"])
def test_member_when_a_host_removed_it_then_that_it_was_well_is_seen_whatever_came_after(
    anna: dict[str, Any], is_broken: bool, then: str
) -> None:
    village = Village("anna", "ben", "carl")
    world = played(village, anna=anna)
    healthy_members_stay(world)
    host, me = village["host"].upkeep, village["anna"].replica.me
    village.do("host", host.remove("anna", "lost"))
    if then == "it is back at once":
        village.do("host", host.take_back(me, 9))
    elif then == "the host is none any more":
        world.machines["host"].state = State.CLOSED
    for _ in range(2):
        healthy_members_stay(world)
    assert len(world.broken) == is_broken


@pytest.mark.parametrize(
    ("anna", "is_broken"),
    [
        ({"ending": Ending.LOST}, True),
        ({"ending": Ending.OVER}, False),
        ({"ending": Ending.LOST, "is_out": "left"}, False),
        ({"ending": Ending.LOST, "well_since_s": 25.0}, False),
    ],
)
@pytest.mark.parametrize("was_removed", [False, True])
def test_member_when_it_ends_its_part_by_itself_then_that_it_was_well_is_seen(
    anna: dict[str, Any], is_broken: bool, was_removed: bool
) -> None:
    village = Village("anna", "ben", "carl")
    world = played(village, anna={**anna, "state": State.CLOSED})
    if was_removed:
        village.do("host", village["host"].upkeep.remove("anna", "lost"))
        world.machines["host"].look()
    for _ in range(2):
        healthy_members_go_on(world)
    assert len(world.broken) == (is_broken and not was_removed)


def on_its_way_back(name: str, village: Village, *, is_killed: bool = False) -> Any:
    """A machine that was started again, and has nothing but what it kept."""
    seat = SimpleNamespace(keeper=SimpleNamespace(kept=SimpleNamespace(log=village[name].replica.log)))
    return SimpleNamespace(
        member_name=name,
        runs=not is_killed,
        is_out="killed" if is_killed else "",
        process=SimpleNamespace(life=Life.DEAD if is_killed else Life.RUNS),
        participation=None,
        hardware=SimpleNamespace(memory_bytes=1),
        seat=None if is_killed else seat,
    )


@pytest.mark.parametrize(
    ("removes_ben", "takes_ben_back", "is_host_killed", "hopeless"),
    [(True, False, True, True), (True, False, False, False), (False, False, True, False), (True, True, True, False)],
)
def test_session_when_all_who_are_left_are_on_their_way_back_then_hopeless_where_the_host_went_on_with_one_of_them(
    removes_ben: bool, takes_ben_back: bool, is_host_killed: bool, hopeless: bool
) -> None:
    """For all that the two can know it goes on alone."""
    village = Village("anna", "ben")
    host, ben = village["host"].upkeep, village["ben"].replica.me
    village.deaf.add("ben")
    if removes_ben:
        village.do("host", host.remove("ben", "lost"))
    if takes_ben_back:
        village.deaf.add("anna")
        village.do("host", host.take_back(ben, 9))
        village["ben"].replica.log = village["host"].replica.log
    machines = {name: on_its_way_back(name, village) for name in ("anna", "ben")}
    machines["host"] = on_its_way_back("host", village, is_killed=is_host_killed)
    assert is_hopeless(cast(World, SimpleNamespace(machines=machines))) is hopeless
