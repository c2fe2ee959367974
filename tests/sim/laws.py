"""What must hold in every run. Each law is a function; its docstring is what is told when it is broken."""

import math
from collections.abc import Callable, Iterator

from kafila_sidecar.lack import as_typed
from kafila_sidecar.session.coordination.rest import PAUSE_S
from kafila_sidecar.session.coordination.states import Ending, State
from tests.sim.clock import Life
from tests.sim.machines import JOIN_AGAIN, SimMachine
from tests.sim.model import can_hold
from tests.sim.world import SETTLE_S, Answer, World

Law = Callable[[World], Iterator[str]]

TWO_SESSIONS_S = 30.0
HEALTHY_S = 10.0  # with the time that a path takes to give way to the relay
REST_TOLD_S = 30.0  # the word of the host that it took a better plan may be this old when it is heard
OWN_END_S = 30.0  # so long a member misses a host, and waits for its successor

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
    """No client waits for ever: not for longer than its machine is in a session."""
    for answer in world.answers:
        if world.is_open(answer):
            yield f"at {answer.machine}: asked at {answer.asked_s:.1f}, {len(answer.ids)} tokens, and no end"


def answers_go_on(world: World) -> Iterator[str]:
    """An answer ends with an error only where that could not be avoided: its machine was out by then, or it waited to
    the end for a session that can't be ready any more."""
    for answer in world.answers:
        if answer.error and not _unavoidable(world, answer):
            yield f"at {answer.machine}: ended at {answer.ended_s:.1f} by {answer.error}"


def _unavoidable(world: World, answer: Answer) -> bool:
    machine = world.machines[answer.machine]
    is_out = bool(machine.is_out) and machine.out_since_s <= _ended_s(answer)
    was_none = JOIN_AGAIN in answer.error  # no member of the session that goes on: only a host's word admits
    waited = _ended_s(answer) >= min(world.settled_s, world.schedule.calm_at_s + SETTLE_S)
    return is_out or was_none or (world.is_hopeless and waited)


def _ended_s(answer: Answer) -> float:
    return float("inf") if answer.ended_s is None else answer.ended_s


def ready_again(world: World) -> Iterator[str]:
    """Whoever can be in a ready session is, at most SETTLE_S after the last fault. One that waits for the memory of
    somebody who is gone can't be, nor one whose room the only rendezvous forgot while nobody reached it for a minute,
    nor one of which most members died without a word, nor one of two members whose host is gone for good."""
    if world.is_hopeless:
        return
    for machine in world.machines.values():
        if machine.runs and not machine.is_out and machine.state is not State.READY:
            yield f"{machine.name} is {machine.state} {SETTLE_S:.0f} s after the last fault"


def is_hopeless(world: World) -> bool:
    """Whether no session can be ready with those who are left; asked when the last fault is long over."""
    return _is_short(world) or _has_no_room(world) or _waits_for_its_host(world) or _are_most_dead(world)


def _are_most_dead(world: World) -> bool:
    """They may be alive and with one another, as far as those who are left can know."""
    running = sum(machine.runs and not machine.is_out for machine in world.machines.values())
    dead = sum(m.process is not None and m.process.life is Life.DEAD for m in world.machines.values())
    return running <= dead


def _is_short(world: World) -> bool:
    """It says so, and it is true of the machines that are left."""
    machines = [machine for machine in world.machines.values() if machine.runs and not machine.is_out]
    followers = [machine.participation.driver.follower for machine in machines if machine.participation]
    says_so = any(follower.shortage and follower.state is not State.CLOSED for follower in followers)
    return says_so and not can_hold([machine.hardware.memory_bytes for machine in machines])


def _has_no_room(world: World) -> bool:
    return any(m.participation and m.runs and not m.participation.channel.has_room for m in world.machines.values())


def _waits_for_its_host(world: World) -> bool:
    """Of two members only the host may go on alone, since each may be cut off from the other: the other one waits for
    it, and so does whoever was lost before and can be taken back by a host only. Where all of them are on their way
    back, the longest log that is kept says so: nobody knows more."""
    out = {machine.member_name for machine in world.machines.values() if machine.is_out}
    left = [machine for machine in world.machines.values() if machine.runs and not machine.is_out]
    channels = (machine.participation.channel for machine in left if machine.participation)
    sessions = [(channel.members, channel.host) for channel in channels]
    if kept := [machine.seat.keeper.kept.log for machine in left if machine.seat]:
        longest = max(kept, key=len)
        sessions.append((longest.members, longest.host))
    return any(len(members) == 2 and host in out for members, host in sessions)


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
    person or the host's wanted it: by no host's hand, whatever became of that one, or of the removed one, since."""
    by_name = {machine.member_name: machine for machine in world.machines.values() if machine.member_name}
    for host in world.machines.values():
        for name in _removed_by(world, host):
            who = by_name.get(name)
            if who is None or who.is_out or who.participation is None:
                continue  # it is on its way back
            if world.now_s - _healthy_since_s(who, host) > HEALTHY_S:
                world.broken.append(
                    f"healthy_members_stay: {name} is no member any more at {host.name}, {world.now_s:.0f} s"
                )


def _removed_by(world: World, host: SimMachine) -> Iterator[str]:
    """Whom entries remove that this machine has signed since it was last looked at."""
    session = host.participation
    if session is None:
        return
    log = session.channel._replica.log
    begin, host.looked_at = host.looked_at, len(log)
    for index in range(max(1, begin), len(log)):
        before, after, entry = log.before(index), log.before(index + 1), log.entries[index].entry
        if after.host != session.channel.self_name or entry in world.judged:
            continue  # another one's, or of the time before it was started again
        world.judged.add(entry)
        yield from sorted(before.members.keys() - after.members.keys())


def _healthy_since_s(who: SimMachine, host: SimMachine) -> float:
    """Since when it and the host have reached each other, and it most others; infinite while they don't. Before its
    first plan there are no links, which come about by the rendezvous."""
    reached_s = max(_or_never(who.reached_since_s), _or_never(who.met_since_s.get(host.name)))
    had_plan = who.participation is not None and who.participation.driver.follower.proposal is not None
    return reached_s if had_plan else max(reached_s, _or_never(who.served_since_s))


def _or_never(since_s: float | None) -> float:
    return math.inf if since_s is None else since_s


def healthy_members_go_on(world: World) -> None:
    """Nobody ends its part by itself while its host has it as a member, and both have reached each other and the
    rendezvous for 30 s."""
    by_name = {machine.member_name: machine for machine in world.machines.values() if machine.member_name}
    for machine in world.machines.values():
        session = machine.participation
        if session is None or machine.state is not State.CLOSED or machine.has_ended is session:
            continue
        machine.has_ended = session
        host = by_name.get(session.channel.host)
        if session.driver.follower.ending is not Ending.LOST or machine.is_out or host is None or host is machine:
            continue
        since_s = (_healthy_since_s(machine, host), *(_or_never(one.served_since_s) for one in (machine, host)))
        if world.now_s - max(since_s) > OWN_END_S and _has(host, session.channel.self_name):
            world.broken.append(f"healthy_members_go_on: {machine.name} ended its part at {world.now_s:.0f} s")


def _has(host: SimMachine, name: str) -> bool:
    session = host.participation
    is_host = session is not None and session.channel.is_host and host.state is not State.CLOSED
    return is_host and session is not None and any(member.name == name for member in session.channel.members)


def better_plans_rest(world: World) -> None:
    """No better plan is taken by itself within five minutes of the one before, whoever is the host by then."""
    for machine in world.members_ready():
        assert machine.participation is not None
        driver = machine.participation.driver
        if driver.coordinator is None:
            continue
        rested_s = PAUSE_S - driver.coordinator.adoption._rest.left_s(driver._clock.now())
        adopted_s = world.now_s - rested_s
        if rested_s >= PAUSE_S or any(abs(adopted_s - one) <= REST_TOLD_S for one in world.adopted_s):
            continue
        if world.adopted_s and adopted_s - world.adopted_s[-1] < PAUSE_S - REST_TOLD_S:
            at = ", ".join(f"{one:.0f}" for one in (*world.adopted_s, adopted_s))
            world.broken.append(f"better_plans_rest: {machine.name} took one again: at {at} s")
        world.adopted_s.append(adopted_s)


WHEN_SETTLED: tuple[Law, ...] = (ready_again,)  # some time after the last fault
AT_THE_END: tuple[Law, ...] = (no_bug, answers_are_right, answers_end, answers_go_on, last_answers, nothing_is_left)
LOOKS: tuple[Callable[[World], None], ...] = (
    one_session,
    healthy_members_stay,
    healthy_members_go_on,
    better_plans_rest,
)
