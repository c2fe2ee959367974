"""The pieces in which weights go from member to member: laws."""

from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.weights.format.manifest import FileLayout, Manifest, Tensor, make_manifest
from kafila_sidecar.weights.format.ranges import Ranges, Span
from kafila_sidecar.weights.format.units import UNIT_BYTES, Unit, is_unit, units_in, units_of

SIZES = st.lists(st.sampled_from((0, 1, 100, UNIT_BYTES - 1, UNIT_BYTES, UNIT_BYTES + 1, 3 * UNIT_BYTES)), max_size=6)
FILE = "model.safetensors"


def manifest(sizes: list[int]) -> Manifest:
    at, tensors = 64, []
    for number, size in enumerate(sizes):
        tensors.append(Tensor(f"t{number}", FILE, "U8", (size,), at, at + size))
        at += size
    return make_manifest([FileLayout(FILE, at, 64, tuple(tensors))])


@given(SIZES)
def test_units_when_of_all_tensors_then_they_are_their_bytes_once_and_none_is_too_large(sizes: list[int]) -> None:
    made = manifest(sizes)
    units = [unit for tensor in made.tensors.values() for unit in units_of(tensor)]
    assert sum(unit.size_bytes for unit in units) == sum(sizes)
    assert len(Ranges.of(Span(unit.start, unit.end) for unit in units)) == sum(sizes)
    assert all(0 < unit.size_bytes <= UNIT_BYTES for unit in units)
    assert all(is_unit(made, unit) for unit in units)


@given(SIZES, st.integers(0, 4 * UNIT_BYTES), st.integers(1, 2 * UNIT_BYTES))
def test_units_when_of_some_bytes_then_exactly_those_that_touch_them(sizes: list[int], at: int, count: int) -> None:
    made = manifest(sizes)
    wanted = Ranges.of([Span(at, at + count)])
    everything = [unit for tensor in made.tensors.values() for unit in units_of(tensor)]
    expected = [unit for unit in everything if unit.start < at + count and at < unit.end]
    assert sorted(units_in(made, {FILE: wanted})) == sorted(expected)


@given(SIZES, st.integers(-1, 9 * UNIT_BYTES), st.integers(-1, 9 * UNIT_BYTES))
def test_span_when_it_is_none_of_the_units_then_it_is_told(sizes: list[int], start: int, end: int) -> None:
    made = manifest(sizes)
    everything = {unit for tensor in made.tensors.values() for unit in units_of(tensor)}
    assert is_unit(made, Unit(FILE, start, end)) == (Unit(FILE, start, end) in everything)
    assert not is_unit(made, Unit("other.safetensors", start, end))
