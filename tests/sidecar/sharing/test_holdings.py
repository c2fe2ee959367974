"""Who holds what, as it is told, read and shared out: laws."""

from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.session.coordination import messages
from kafila_sidecar.sharing.holdings import HeldByMembers, share_out, tell
from kafila_sidecar.weights.format.ranges import Ranges, Span
from kafila_sidecar.weights.format.units import Unit

FILES = ("a.safetensors", "b.safetensors", "c.safetensors")
SPANS = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 50)), max_size=12)
HELD = st.dictionaries(st.sampled_from(FILES), SPANS)
UNITS = st.builds(lambda file, at, size: Unit(file, at, at + size), st.sampled_from(FILES), *[st.integers(1, 90)] * 2)
WHO = st.lists(st.sampled_from(("ada", "bob", "cyd", "dan")), unique=True)


def ranges(spans: list[tuple[int, int]]) -> Ranges:
    return Ranges.of(Span(start, start + size) for start, size in spans)


@given(HELD)
def test_holdings_when_told_and_read_then_they_are_what_they_were(held: dict[str, list[tuple[int, int]]]) -> None:
    mine = {file: ranges(spans) for file, spans in held.items()}
    read = messages.read_holds(tell(mine, FILES)).held
    assert {FILES[file]: list(spans) for file, spans in read.items()} == {f: list(r) for f, r in mine.items() if len(r)}


def test_holdings_when_there_are_too_many_spans_then_the_largest_are_told() -> None:
    many = Ranges.of(Span(10 * n, 10 * n + (5 if n % 2 else 1)) for n in range(3 * messages.MOST_SPANS // 2))
    read = messages.read_holds(tell({FILES[0]: many}, FILES)).held[0]
    assert len(list(read)) == messages.MOST_SPANS
    assert len(read) > 5 * len(list(many)) // 2
    assert not len(read.minus(many))


@given(st.dictionaries(UNITS, WHO, max_size=20), WHO)
def test_shares_when_given_out_then_each_unit_goes_once_to_a_holder_a_linked_one_if_there_is_any(
    holders: dict[Unit, list[str]], linked: list[str]
) -> None:
    shares = share_out(holders, linked)
    given_out = [unit for units in shares.values() for unit in units]
    assert sorted(given_out) == sorted(unit for unit, names in holders.items() if names)
    for member, units in shares.items():
        for unit in units:
            assert member in holders[unit]
            assert member in linked or not set(linked) & set(holders[unit])


def test_shares_when_two_hold_all_then_each_gives_half() -> None:
    units = [Unit(FILES[0], at, at + 4) for at in range(0, 40, 4)]
    shares = share_out({unit: ["ada", "bob"] for unit in units}, ["ada", "bob"])
    assert sorted(map(len, shares.values())) == [5, 5]


def test_holders_when_one_left_or_has_a_part_only_then_not_among_them() -> None:
    holdings = HeldByMembers()
    for member, end in (("ada", 100), ("bob", 100), ("cyd", 49)):
        holdings.learn(member, {0: Ranges.of([Span(0, end)])})
    assert holdings.holders(0, Unit(FILES[0], 10, 50)) == ["ada", "bob"]
    holdings.members(["bob", "cyd"])
    assert holdings.holders(0, Unit(FILES[0], 10, 50)) == ["bob"]
    assert holdings.holders(1, Unit(FILES[1], 10, 50)) == []
