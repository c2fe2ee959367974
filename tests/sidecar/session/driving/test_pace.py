"""How quickly bytes come, from what is here at which time."""

import pytest

from kafila_sidecar.session.driving.pace import WINDOW_S, FetchPace


@pytest.mark.parametrize(
    ("seen", "bytes_per_s"),
    [
        ([(0.0, 0)], 0.0),
        ([(0.0, 100), (2.0, 300)], 100.0),
        ([(0.0, 0), (1.0, 1000), (2.0, 2000), (9.0, 2000)], 0.0),
        ([(0.0, 0), (0.0, 50)], 0.0),
        ([(0.0, 500), (1.0, 700), (2.0, 100), (3.0, 150)], 50.0),  # what was wrong is fetched again
    ],
)
def test_pace_when_bytes_come_then_it_is_that_of_the_last_seconds(
    seen: list[tuple[float, int]], bytes_per_s: float
) -> None:
    pace = FetchPace()
    assert [pace.note(now, here_bytes) for now, here_bytes in seen][-1] == bytes_per_s


def test_pace_when_it_changes_then_the_former_is_forgotten_within_the_window() -> None:
    pace = FetchPace()
    here_bytes = 0
    for second in range(20):
        here_bytes += 1000 if second < 10 else 10
        rate = pace.note(float(second), here_bytes)
    assert rate == 10.0
    assert WINDOW_S < 10
