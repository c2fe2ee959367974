"""By UDP or by stream: a law over all that may be heard, in any order and at any time."""

from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.net.relay.carriage import (
    FIRST_PATIENCE_S,
    LARGEST_PROBE_S,
    MOST_PROOFS,
    PATIENCE_S,
    PROOFS,
    Carriage,
    Due,
)


def run(carriage: Carriage, now: float, until: float, *, udp: bool) -> tuple[float, int]:
    """Lets time pass with a relay that answers at once, by the stream always, by UDP where it lives; probes sent."""
    probes = 0
    while (due := carriage.next_timer()) is not None and due <= until:
        now = due
        match carriage.handle_timer(now):
            case Due.FALL_BACK:
                carriage.heard()
            case Due.PROBE:
                probes += 1
                if udp and carriage.proved(now):
                    carriage.heard()
    return until, probes


def steady(now: float) -> Carriage:
    carriage = Carriage(by_stream=False, now=now)
    carriage.heard()
    return carriage


def test_udp_when_the_first_answer_does_not_come_then_the_stream_after_the_first_patience() -> None:
    carriage = Carriage(by_stream=False, now=5.0)
    assert carriage.next_timer() == 5.0 + FIRST_PATIENCE_S
    assert carriage.handle_timer(5.0) is Due.NOTHING
    assert carriage.handle_timer(5.0 + FIRST_PATIENCE_S) is Due.FALL_BACK
    assert carriage.by_stream


def test_udp_when_doubted_and_it_answers_then_it_stays() -> None:
    carriage = steady(0.0)
    assert carriage.doubt(10.0)
    carriage.heard()
    assert carriage.next_timer() is None
    assert not carriage.by_stream


def test_doubt_when_it_is_said_again_and_again_then_the_patience_is_not_prolonged() -> None:
    carriage = steady(0.0)
    for now in (10.0, 10.4, 10.8):
        carriage.doubt(now)
    assert carriage.handle_timer(10.0 + PATIENCE_S) is Due.FALL_BACK


def test_stream_when_it_is_silent_as_well_then_one_answer_by_udp_is_enough() -> None:
    carriage = steady(0.0)
    carriage.doubt(10.0)
    carriage.handle_timer(10.0 + PATIENCE_S)
    assert carriage.handle_timer(carriage.next_timer() or 0.0) is Due.PROBE
    assert carriage.proved(12.1)
    assert not carriage.by_stream


def test_answer_when_nothing_was_asked_then_it_proves_nothing() -> None:
    carriage = Carriage(by_stream=True, now=0.0)
    assert not carriage.proved(0.5)
    assert not steady(0.0).proved(1.0)


@given(st.lists(st.tuples(st.floats(2.0, 90.0), st.floats(2.0, 90.0)), min_size=1, max_size=8))
def test_outages_when_they_come_in_any_order_then_stream_in_each_udp_after_each_and_few_probes(
    schedule: list[tuple[float, float]],
) -> None:
    carriage, now, turns = steady(0.0), 0.0, 0
    for lasts_s, pause_s in schedule:
        if not carriage.by_stream:
            carriage.doubt(now)
            turns += 1
        now, probes = run(carriage, now, now + lasts_s, udp=False)
        assert carriage.by_stream
        assert probes <= 5 + lasts_s / LARGEST_PROBE_S + 1
        now, _ = run(carriage, now, now + pause_s, udp=True)
    now, _ = run(carriage, now, now + LARGEST_PROBE_S + MOST_PROOFS + 2, udp=True)
    assert not carriage.by_stream
    assert turns <= len(schedule)


def test_udp_when_it_comes_and_goes_then_each_return_has_to_show_more() -> None:
    carriage, now, waits = steady(0.0), 0.0, []
    for _ in range(6):
        carriage.doubt(now)
        now, _ = run(carriage, now, now + PATIENCE_S, udp=False)
        began = now
        while carriage.by_stream:
            now, _ = run(carriage, now, now + 1.0, udp=True)
        waits.append(now - began)
        now += 3.0
    assert waits == sorted(waits)
    assert waits[0] <= PROOFS + 1
    assert waits[-1] >= MOST_PROOFS
