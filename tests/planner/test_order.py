"""Ring order against brute force, and who reaches whom."""

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner.model.reach import Reach, classify, is_direct
from kafila_planner.model.types import Filtering, Mapping, Node, Objective
from kafila_planner.ring.counting import counted_ring
from kafila_planner.ring.tour import cheapest_ring, good_ring, held_karp, ring_weight, ring_weights
from tests.planner.oracle import relays, ring_cost
from tests.planner.problems import NAT, QUICK, Json, member, plan, problem

EI, AD, APD = (word.value for word in list(Mapping)[:3])


def ring(given: Json) -> tuple[Json, ...]:
    """The planned ring's members."""
    by_name = {one["name"]: one for one in given["members"]}
    return tuple(by_name[name] for name in plan(given).order)


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ("permissive", "permissive", "direct"),
        ("permissive", "ordinary", "direct"),
        ("permissive", "restrictive", "direct"),
        ("ordinary", "ordinary", "direct"),
        ("ordinary", "restrictive", "relay"),
        ("restrictive", "restrictive", "relay"),
    ],
)
@pytest.mark.parametrize("objective", ["paper", "latency", "throughput"])
def test_path_when_classes_are_given_then_it_is_as_table_iii_predicts(
    a: str, b: str, path: str, objective: str
) -> None:
    pair = [member("A", nat=a), member("B", nat=b)]
    found = plan(problem(pair, objective=objective, require=["all"]))
    assert [hop.path for hop in found.hops] == [path, path]
    assert found.relayed_hops == 2 * (path == "relay")


def seen(mapping: str, filtering: str, name: str = "A", **fields: object) -> Json:
    plain = member(name, mapping=mapping, filtering=filtering, **fields)
    del plain["nat"]
    return plain


@pytest.mark.parametrize(
    ("one", "other", "objective", "path"),
    [
        (seen(EI, AD), member("B", nat="restrictive"), "latency", "direct"),
        (seen(EI, AD), member("B", nat="restrictive"), "paper", "relay"),
        (seen(EI, APD), member("B", nat="restrictive"), "latency", "relay"),
        (seen(AD, EI), member("B", nat="restrictive"), "latency", "relay"),
        (seen(EI, "unknown"), member("B", nat="restrictive"), "latency", "relay"),
        (seen(EI, "unknown"), member("B", nat="ordinary"), "latency", "direct"),
        (seen("unknown", EI), member("B"), "latency", "relay"),
        (seen("unknown", EI), member("B"), "paper", "relay"),
        (member("A", udp=False), member("B"), "latency", "relay"),
        (member("A", udp=False), member("B"), "paper", "relay"),
    ],
)
def test_path_when_behaviours_are_given_then_the_pair_rule_decides(
    one: Json, other: Json, objective: str, path: str
) -> None:
    found = plan(problem([one, other], objective=objective, require=["all"]))
    assert found.hops[0].path == path


def test_classify_when_nothing_is_known_then_isolated() -> None:
    assert classify(Node("A"), Objective.PAPER) is Reach.ISOLATED
    assert classify(Node("A", Mapping.ADDRESS_DEPENDENT, Filtering.UNKNOWN), Objective.PAPER) is Reach.RESTRICTIVE


def counted(classes: tuple[Reach, ...], order: tuple[int, ...]) -> int:
    pairs = zip(order, (*order[1:], order[0]), strict=True) if len(order) > 1 else ()
    return sum(not is_direct(classes[a], classes[b]) for a, b in pairs)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_counted_ring_when_every_mix_of_classes_then_fewest_relays_and_smallest_order(size: int) -> None:
    for classes in product(Reach, repeat=size):
        best = min((counted(classes, (0, *rest)), (0, *rest)) for rest in permutations(range(1, size)))
        found = counted_ring(0, range(1, size), classes)
        assert (counted(classes, found), found) == best


@QUICK
@given(st.lists(st.sampled_from(list(Reach)), min_size=5, max_size=7))
def test_counted_ring_when_up_to_seven_then_fewest_relays_and_smallest_order(classes: list[Reach]) -> None:
    size, mix = len(classes), tuple(classes)
    best = min((counted(mix, (0, *rest)), (0, *rest)) for rest in permutations(range(1, size)))
    found = counted_ring(0, range(1, size), mix)
    assert (counted(mix, found), found) == best


@pytest.mark.parametrize("mix", [(3, 2, 3), (1, 2, 4), (0, 3, 2), (2, 0, 5), (4, 4, 0), (5, 0, 5), (20, 20, 24)])
def test_plan_when_a_round_trip_is_missing_then_relays_are_the_formulas_least(mix: tuple[int, int, int]) -> None:
    """max(0, R − P + [O > 0]) if R > 0, for three members or more."""
    permissive, ordinary, restrictive = mix
    nats = [nat for nat, many in zip(NAT, mix, strict=True) for _ in range(many)]
    crowd = [member(f"m{place:02}", nat=nat, rtt_s=None) for place, nat in enumerate(nats)]
    given = problem(crowd)
    given["model"]["blocks"] = 64
    found = plan(given)
    assert found.ordered_by == "counting"
    assert found.relayed_hops == (max(0, restrictive - permissive + (ordinary > 0)) if restrictive else 0)


rtts = st.sampled_from([0.002, 0.005, 0.010, 0.010, 0.080, 0.115])


@QUICK
@given(st.lists(st.tuples(st.sampled_from(NAT), rtts), min_size=3, max_size=7))
def test_plan_when_every_round_trip_is_known_then_ring_cost_is_that_of_brute_force(
    each: list[tuple[str, float]],
) -> None:
    crowd = [member(f"m{place}", nat=nat, rtt_s=rtt) for place, (nat, rtt) in enumerate(each)]
    given = problem(crowd)
    found = plan(given)
    least = min(ring_cost((crowd[0], *rest)) for rest in permutations(crowd[1:]))
    assert found.ordered_by == "priced"
    assert found.ring_cost_s == pytest.approx(least, abs=1e-9)
    assert found.ring_cost_s == pytest.approx(ring_cost(ring(given)), abs=1e-9)
    assert found.network_s == pytest.approx(least / 2, abs=1e-9)
    assert found.relayed_hops == relays(ring(given))


def test_plan_when_every_hop_relays_then_near_members_are_neighbours() -> None:
    """All rings cost the same; separation tells them apart."""
    far_apart = {"A": 0.010, "B": 0.100, "C": 0.011, "D": 0.101}
    crowd = [member(name, nat="restrictive", rtt_s=rtt) for name, rtt in far_apart.items()]
    order = plan(problem(crowd)).order
    assert order in (("A", "C", "B", "D"), ("A", "C", "D", "B"), ("A", "B", "D", "C"), ("A", "D", "B", "C"))
    neighbours = {frozenset(pair) for pair in zip(order, (*order[1:], order[0]), strict=True)}
    assert {frozenset("AC"), frozenset("BD")} <= neighbours


def test_plan_when_all_members_are_equal_then_the_order_is_by_name_from_the_anchor() -> None:
    crowd = [member(name) for name in "DBAEC"]
    assert plan(problem(crowd, anchor="C")).order == ("C", "A", "B", "D", "E")


def test_plan_when_an_edge_is_measured_then_it_takes_the_predictions_place() -> None:
    crowd = [member("A", rtt_s=0.05), member("B", rtt_s=0.05), member("C", nat="restrictive", rtt_s=0.05)]
    edges = [{"between": ["C", "A"], "rtt_s": 0.030, "path": "relay"}]
    found = plan(problem(crowd, edges=edges))
    hop = next(hop for hop in found.hops if {hop.from_member, hop.to_member} == {"A", "C"})
    assert (hop.path, hop.cost_s) == ("relay", 0.015)
    assert found.relayed_hops == 1


def test_plan_when_two_members_then_the_one_pair_is_two_hops() -> None:
    found = plan(problem([member("A", rtt_s=0.010), member("B", rtt_s=0.030)]))
    assert [(hop.from_member, hop.to_member) for hop in found.hops] == [("A", "B"), ("B", "A")]
    assert found.ring_cost_s == pytest.approx(0.040)
    assert found.network_s == pytest.approx(0.020)


def test_plan_when_a_round_trip_is_unknown_then_what_depends_on_it_is_null_and_it_says_so() -> None:
    found = plan(problem([member("A"), member("B", rtt_s=None), member("C")]))
    assert found.ordered_by == "counting"
    assert (found.ring_cost_s, found.network_s, found.circuit_s) == (None, None, None)
    assert {hop.cost_s for hop in found.hops if "B" in (hop.from_member, hop.to_member)} == {None}
    assert found.tokens_per_s_one_user == pytest.approx(1 / (found.compute_s or 0))
    assert any("leave the network out" in note for note in found.notes)


def weights(size: int, seed: int) -> list[list[int]]:
    matrix = [[0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            matrix[a][b] = matrix[b][a] = (seed * (7 * a + 13 * b + a * b * b) + a * 31) % 97
    return matrix


@pytest.mark.parametrize("seed", range(5))
def test_held_karp_when_eight_members_then_least_and_smallest_of_all_orders(seed: int) -> None:
    matrix = weights(8, seed + 1)
    best = min((ring_weight((0, *rest), matrix), (0, *rest)) for rest in permutations(range(1, 8)))
    found = held_karp(0, range(1, 8), matrix)
    assert (ring_weight(found, matrix), found) == best


def test_ring_weights_when_every_subset_then_each_is_its_cheapest_ring() -> None:
    matrix = weights(7, 3)
    rings = ring_weights(range(7), matrix)
    for mask in range(1, 1 << 7):
        chosen = [place for place in range(7) if mask >> place & 1]
        assert rings[mask] == ring_weight(cheapest_ring(chosen[0], chosen[1:], matrix), matrix)


@pytest.mark.parametrize("size", [17, 64])
def test_good_ring_when_many_members_on_a_line_then_it_is_the_best_there_is(size: int) -> None:
    """Between points on a line the best ring goes there and back."""
    places = [(place * 37) % 101 for place in range(size)]
    matrix = [[abs(a - b) for b in places] for a in places]
    found = good_ring(0, range(1, size), matrix)
    assert sorted(found) == list(range(size))
    assert ring_weight(found, matrix) == 2 * (max(places) - min(places))


@pytest.mark.parametrize("seed", range(12))
def test_good_ring_when_ten_members_then_close_to_exact(seed: int) -> None:
    matrix = weights(10, seed + 1)
    exact = ring_weight(held_karp(0, range(1, 10), matrix), matrix)
    assert ring_weight(good_ring(0, range(1, 10), matrix), matrix) <= 1.15 * exact
