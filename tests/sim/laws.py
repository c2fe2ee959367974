"""What must hold in every run. Each law is a function; its docstring is what is told when it is broken."""

from collections.abc import Callable, Iterator

from kafila_sidecar.lack import as_typed
from kafila_sidecar.session.coordination.states import State
from tests.sim.clock import Life
from tests.sim.machines import SimMachine
from tests.sim.world import SETTLE_S, Answer, World

Law = Callable[[World], Iterator[str]]

TWO_SESSIONS_S = 30.0
HEALTHY_S = 10.0  # with the time that a path takes to give way to the relay

NOT_YET: dict[str, str] = {}
"""Laws that can't hold with the product as it is, and why."""


def no_bug(world: World) -> Iterator[str]:
    """Nothing raises what it should not."""
    yield from world.loop.errors
    for machine in world.machines.values():
        if machine.running is not None and machine.running.done() and (error := machine.running.exception()):
            yield f"{machine.name} ended by {error!r}"
        fault = machine.participation.driver.follower.fault if machine.participation else None
        if fault is not None and ("a bug at" in fault.sentence or fault.code == "INTERNAL"):
            yield f"{machine.name}: {fault.sentence}"
        yield from _bugs_of_tasks(machine)
    for answer in world.answers:
        if "a bug at" in answer.error or answer.error.startswith("INTERNAL"):
            yield f"an answer at {answer.machine}: {answer.error}"


def _bugs_of_tasks(machine: SimMachine) -> Iterator[str]:
    """Of all that it began: nobody need have asked how that ended."""
    for task in machine.process.tasks if machine.process is not None else ():
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None and as_typed(error) is None:
            yield f"{machine.name}'s task {task.get_name()} ended by {error!r}"


def answers_are_right(world: World) -> Iterator[str]:
    """What a client reads is the right answer, or its beginning where the answer did not end."""
    for answer in world.answers:
        right = answer.right
        if answer.is_complete and answer.ids != right:
            yield f"at {answer.machine}: {answer.ids} is complete, but {right} is right"
        elif answer.ids != right[: len(answer.ids)]:
            yield f"at {answer.machine}: {answer.ids} is no beginning of {right}"


def answers_end(world: World) -> Iterator[str]:
    """No client waits for ever."""
    for answer in world.answers:
        if world.is_open(answer):
            yield f"at {answer.machine}: asked at {answer.asked_s:.1f}, {len(answer.ids)} tokens, and no end"


def answers_go_on(world: World) -> Iterator[str]:
    """An answer ends with an error only where that could not be avoided: its machine was out, or memory is short."""
    for answer in world.answers:
        if answer.error and not _unavoidable(world, answer):
            yield f"at {answer.machine}: ended at {answer.ended_s:.1f} by {answer.error}"


def _unavoidable(world: World, answer: Answer) -> bool:
    machine = world.machines[answer.machine]
    is_lost = answer.process is None or answer.process.life is Life.DEAD
    return bool(machine.is_out) or is_lost or _is_short(world) or _has_no_room(world) or _waits_for_its_host(world)


def ready_again(world: World) -> Iterator[str]:
    """Whoever can be in a ready session is, at most SETTLE_S after the last fault. One that waits for the memory of
    somebody who is gone can't be, nor one whose room the only rendezvous forgot while nobody reached it for a minute,
    nor one of which most members died without a word, nor one of two members whose host is gone for good."""
    running = sum(machine.runs and not machine.is_out for machine in world.machines.values())
    dead = sum(m.process is not None and m.process.life is Life.DEAD for m in world.machines.values())
    if _is_short(world) or _has_no_room(world) or _waits_for_its_host(world) or running <= dead:
        return
    for machine in world.machines.values():
        if machine.runs and not machine.is_out and machine.state is not State.READY:
            yield f"{machine.name} is {machine.state} {SETTLE_S:.0f} s after the last fault"


def _is_short(world: World) -> bool:
    """It says so, and somebody is gone; or it never had enough, and ended."""
    machines = world.machines.values()
    followers = [m.participation.driver.follower for m in machines if m.participation]
    never_fitted = any(f.fault and f.fault.code == "FAILED_PRECONDITION" and not f.proposal for f in followers)
    waits = any(f.shortage and f.state is not State.CLOSED for f in followers)
    is_somebody_gone = any(m.is_out or (m.process and m.process.life is Life.DEAD) for m in machines)
    return never_fitted or (waits and is_somebody_gone)


def _has_no_room(world: World) -> bool:
    return any(m.participation and m.runs and not m.participation.channel.has_room for m in world.machines.values())


def _waits_for_its_host(world: World) -> bool:
    """Of two members only the host may go on alone, since each may be cut off from the other: the other one waits for
    it, and so does whoever was lost before and can be taken back by a host only."""
    out = {machine.member_name for machine in world.machines.values() if machine.is_out}
    channels = [m.participation.channel for m in world.machines.values() if m.participation and m.runs and not m.is_out]
    return any(len(channel.members) == 2 and channel.host in out for channel in channels)


def last_answers(world: World) -> Iterator[str]:
    """A session that says that it is ready answers; who was put out, and is asked all the same, has none."""
    for answer in world.answers:
        is_out = world.machines[answer.machine].is_out
        if answer.asked_s >= world.settled_s and not answer.is_complete and not is_out:
            yield f"at {answer.machine}: {answer.error or 'no end'}"


def nothing_is_left(world: World) -> Iterator[str]:
    """After everybody has left nothing runs, waits, holds a sequence, a link or a mailbox."""
    for machine in world.machines.values():
        if not machine.runs or machine.process is None:
            continue
        tasks = [task.get_name() for task in machine.process.tasks if not task.done()]
        if tasks:
            yield f"{machine.name} has tasks: {', '.join(tasks[:6])}"
        if machine.participation is not None and (held := machine.participation.stage.active_sequences):
            yield f"{machine.name} holds {held} sequences"
    if timers := _left_timers(world):
        yield f"timers: {', '.join(timers[:3])}"
    if attending := world.rendezvous.attending:
        yield f"mailboxes are attended by {', '.join(attending)}"
    if world.links.count:
        yield f"{world.links.count} ends of links stand"


def _left_timers(world: World) -> list[str]:
    """Of processes that run; those of a coroutine that has ended were cancelled."""
    alive = {m.process for m in world.machines.values() if m.runs}
    return [name for process, name in world.loop.waiting_timers() if process in alive]


# ---- Looked at each second


def one_session(world: World) -> None:
    """Two ready sessions of one founding never stand side by side for longer than 30 s of connection."""
    ready = world.members_ready()
    key = "one_session"
    apart = [
        (one, other)
        for one in ready
        for other in ready
        if one.name < other.name and _host(one) != _host(other) and world.can_meet(one, other)
    ]
    _since(world, key, apart, TWO_SESSIONS_S)


def _since(world: World, key: str, wrong: list[tuple[SimMachine, SimMachine]], most_s: float) -> None:
    if not wrong:
        world.now_wrong_s.pop(key, None)
        return
    since = world.now_wrong_s.setdefault(key, world.now_s)
    if world.now_s - since > most_s:
        one, other = wrong[0]
        world.broken.append(f"{key}: {one.name} with {_host(one)} and {other.name} with {_host(other)} are both ready")
        world.now_wrong_s[key] = float("inf")


def _host(machine: SimMachine) -> str:
    assert machine.participation is not None
    return machine.participation.channel.host


def healthy_members_stay(world: World) -> None:
    """Nobody who runs, and whom most others who run have reached for 10 s, the host among them, is removed unless its
    person or the host's wanted it."""
    by_name = {machine.member_name: machine for machine in world.machines.values() if machine.member_name}
    for machine in world.machines.values():
        session = machine.participation
        if (
            session is None
            or not machine.runs
            or session.driver.follower.proposal is None
            or machine.state is State.CLOSED
        ):
            continue
        members = {member.name for member in session.channel.members}
        gone, machine.known_as = machine.known_as - members, members
        for name in sorted(gone) if session.channel.is_host else ():  # the others may hear of it much later
            who = by_name.get(name)
            if who is None or who.is_out or who.reached_since_s is None or who.participation is None:
                continue  # it is on its way back
            met_since_s = who.met_since_s.get(machine.name)
            if met_since_s is None:
                continue  # every member needs a link to the head
            if world.now_s - max(met_since_s, who.reached_since_s) > HEALTHY_S:
                world.broken.append(
                    f"healthy_members_stay: {name} is no member any more at {machine.name}, {world.now_s:.0f} s"
                )


WHEN_SETTLED: tuple[Law, ...] = (ready_again,)  # some time after the last fault
AT_THE_END: tuple[Law, ...] = (no_bug, answers_are_right, answers_end, answers_go_on, last_answers, nothing_is_left)
LOOKS: tuple[Callable[[World], None], ...] = (one_session, healthy_members_stay)
