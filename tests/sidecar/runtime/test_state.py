import pytest

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.state import HiddenState


@pytest.mark.parametrize(
    ("payload", "dtype", "shape", "position"),
    [
        (b"1234", "float64", (1, 1, 1), 0),
        (b"123", "float32", (1, 1, 1), 0),
        (b"", "float32", (1, 0, 1), 0),
        (b"1234", "float32", (1, 1), 0),
        (b"1234", "float32", (1, 1, 1), -1),
        (b"1234", "float32", (-1, -1, 1), 0),
    ],
)
def test_state_when_its_parts_dont_fit_then_refused(
    payload: bytes, dtype: str, shape: tuple[int, int, int], position: int
) -> None:
    with pytest.raises(InvalidInput):
        HiddenState(payload, dtype, shape, position)


def test_state_when_sixteen_bits_then_two_bytes_an_element() -> None:
    assert HiddenState(b"12345678", "bfloat16", (1, 2, 2), 0).nbytes == 8
