"""What happens in one run: drawn from its seed alone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

NAMES = ("ada", "bob", "cyd", "dan", "eve", "fay")
CALM_S = 14.0  # before the first fault, in most runs: a session is ready by then
EVENTFUL_S = 50.0  # in which faults begin
LONGEST_HANG_S = 60.0


class What(StrEnum):
    """Kinds of faults and of what people do."""

    KILL = "kill"  # the process dies; the disk stays
    RESTART = "restart"  # it dies, and is started again later; its person types the code
    HANG = "hang"  # it is stopped, and goes on later
    OFFLINE = "offline"  # no network at all
    CUT = "cut"  # two can't reach each other directly; their relay is there
    CUT_ONE_WAY = "cut one way"
    CUT_APART = "cut apart"  # two parts of the members: one has no rendezvous either
    NO_UDP = "no udp"
    NO_RENDEZVOUS = "no rendezvous"  # for one machine
    RENDEZVOUS_AWAY = "rendezvous away"  # for everybody
    SOURCE_AWAY = "source away"
    JOIN = "join"
    LEAVE = "leave"
    KICK = "kick"
    MOVE = "move"  # from one network to another: a gap, and a new address; drawn beside the others, if at all


WEIGHTS = {
    What.KILL: 3,
    What.RESTART: 2,
    What.HANG: 5,
    What.OFFLINE: 3,
    What.CUT: 2,
    What.CUT_ONE_WAY: 2,
    What.CUT_APART: 2,
    What.NO_UDP: 2,
    What.NO_RENDEZVOUS: 2,
    What.RENDEZVOUS_AWAY: 2,
    What.SOURCE_AWAY: 2,
    What.JOIN: 2,
    What.LEAVE: 2,
    What.KICK: 1,
}
INSTANT = (What.KILL, What.JOIN, What.LEAVE, What.KICK)


@dataclass(frozen=True, slots=True)
class Happening:
    """`who`: the machines that it concerns; `for_s`: until it is over, 0 where it is at once."""

    at_s: float
    what: What
    who: tuple[str, ...]
    for_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.what} {', '.join(self.who)}{lasts}"


@dataclass(frozen=True, slots=True)
class Asking:
    """A prompt typed at a machine."""

    at_s: float
    machine: str
    prompt: tuple[int, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """`calm_at_s`: the last fault is over."""

    seed: int
    members: tuple[str, ...]
    happenings: tuple[Happening, ...]
    askings: tuple[Asking, ...]
    memory_bytes: tuple[int, ...]
    calm_at_s: float


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    members = NAMES[: chance.choice((3, 3, 4, 4, 5, 6))]
    begins_s = CALM_S if chance.random() < 0.8 else 0.5
    count = chance.choice((1, 1, 2, 2, 3, 4))
    happenings = tuple(sorted((_happening(chance, members, begins_s) for _ in range(count)), key=lambda h: h.at_s))
    calm_at_s = max(happening.at_s + happening.for_s for happening in happenings)
    askings = tuple(_asking(chance, members, happenings) for _ in range(chance.randint(3, 7)))
    tight = chance.random() < 0.2
    memory = tuple(chance.choice((400, 500, 700) if tight else (700, 1000, 1500)) * 1_000_000 for _ in NAMES)
    return Schedule(seed, members, happenings, tuple(sorted(askings, key=lambda a: a.at_s)), memory, calm_at_s)


def draw_moving(seed: int) -> Schedule:
    """The same schedule, in which one or two machines move besides."""
    drawn, chance = draw(seed), random.Random(f"moves {seed}")
    moves = [
        Happening(
            round(CALM_S + chance.random() * EVENTFUL_S, 3),
            What.MOVE,
            (chance.choice(drawn.members),),
            round(chance.choice((0.2, 2.0, 6.0, 20.0)) * (0.5 + chance.random()), 3),
        )
        for _ in range(chance.choice((1, 1, 2)))
    ]
    happenings = tuple(sorted((*drawn.happenings, *moves), key=lambda h: h.at_s))
    return replace(drawn, happenings=happenings, calm_at_s=max(h.at_s + h.for_s for h in happenings))


def _happening(chance: random.Random, members: Sequence[str], begins_s: float) -> Happening:
    what = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    at_s = round(begins_s + chance.random() * EVENTFUL_S, 3)
    for_s = 0.0 if what in INSTANT else round(_duration_s(chance), 3)
    return Happening(at_s, what, _who(chance, what, members), for_s)


def _duration_s(chance: random.Random) -> float:
    """From 2 s to a minute, short ones more often."""
    return 2.0 + (LONGEST_HANG_S - 2.0) * chance.random() ** 2


def _who(chance: random.Random, what: What, members: Sequence[str]) -> tuple[str, ...]:
    match what:
        case What.CUT | What.CUT_ONE_WAY:
            return tuple(chance.sample(members, 2))
        case What.CUT_APART:
            return tuple(sorted(chance.sample(members, chance.randint(1, len(members) - 1))))
        case What.RENDEZVOUS_AWAY | What.SOURCE_AWAY:
            return ()
        case What.JOIN:
            return ("new",)
        case _:
            return (chance.choice(members),)


def _asking(chance: random.Random, members: Sequence[str], happenings: Sequence[Happening]) -> Asking:
    """Most are under way when something happens."""
    near = chance.choice(happenings).at_s - chance.random() * 5.0
    at_s = near if chance.random() < 0.8 else chance.random() * EVENTFUL_S
    prompt = tuple(chance.randrange(1, 97) for _ in range(chance.choice((2, 5, 12, 30))))
    return Asking(round(max(0.5, at_s), 3), chance.choice(members), prompt, chance.randint(4, 20))
