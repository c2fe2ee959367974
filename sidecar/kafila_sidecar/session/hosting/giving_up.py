"""What the host does once a wait has outlived its deadline, by what it waited for: the others go on without those who
were waited for. No I/O, no clock."""

from collections.abc import Callable, Mapping, Sequence

from kafila_sidecar.session.coordination.effects import CoordinatorOutput, Fault
from kafila_sidecar.session.coordination.states import Phase
from kafila_sidecar.session.hosting.course import Course
from kafila_sidecar.session.hosting.waits import SHORT_DEADLINE_S
from kafila_sidecar.session.judging.sources import SOURCE_DEADLINE_S

GiveUp = Callable[[Course, float], list[CoordinatorOutput]]


def give_up_waiting(course: Course, now: float) -> list[CoordinatorOutput]:
    """To be called when `Waits.until` has come."""
    return _BY_PHASE.get(course.phase, _planner)(course, now)


def _measurements(course: Course, now: float) -> list[CoordinatorOutput]:
    if course.waits.calls_the_roll(now):
        silent = dict.fromkeys(course.silent(), f"did not answer {course.name}, the host now")
        return course.wait_no_more_for(silent, now)
    return course.go_on_without(dict.fromkeys(course.waiting_for(), "did not measure itself in time"), now)


def _links(course: Course, now: float) -> list[CoordinatorOutput]:
    return course.part(course.missing_links(), now)


def _broken_links(course: Course, now: float) -> list[CoordinatorOutput]:
    course.waits.deadline = None
    return course.part(course.broken_ring(), now)


def _stages(course: Course, now: float) -> list[CoordinatorOutput]:
    waits, fetching = course.waits, course.waiting_for()
    if waits.is_over(now):
        return _broken_links(course, now)
    if late := waits.sources.late(fetching, now):
        return _source_is_away(course, late, now)
    return course.go_on_without(waits.stuck(fetching, now), now)


def _source_is_away(course: Course, late: Sequence[str], now: float) -> list[CoordinatorOutput]:
    """One that waits alone may go; what others wait for too is nobody's fault, and ends for all."""
    what = course.waits.sources.sentence(late[0])
    if len(late) == 1 and course.loaded and late[0] != course.name:
        return course.go_on_without({late[0]: f"waited for too long: {what}"}, now)
    minutes = f"{SOURCE_DEADLINE_S / 60:.0f} minutes"
    return course.dissolve(
        Fault("", "UNAVAILABLE", f"gave up fetching: {', '.join(late)} waited for {minutes}: {what}"), now
    )


def _memory(course: Course, now: float) -> list[CoordinatorOutput]:
    days = f"{SHORT_DEADLINE_S / 86400:.0f} days"
    return course.dissolve(Fault("", "DEADLINE_EXCEEDED", f"gave up after {days}: {course.shortage}"), now)


def _planner(course: Course, now: float) -> list[CoordinatorOutput]:
    return course.dissolve(Fault("", "DEADLINE_EXCEEDED", "gave up planning: still waiting for the planner"), now)


_BY_PHASE: Mapping[Phase, GiveUp] = {
    Phase.FORMING: _memory,
    Phase.MEASURING: _measurements,
    Phase.LINKING: _links,
    Phase.FETCHING: _stages,
    Phase.READY: _broken_links,
}
