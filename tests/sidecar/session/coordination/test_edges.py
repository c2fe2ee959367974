"""Predicted beside achieved: the pair rule on the planner's input, and what members reported of their links."""

import pytest

from kafila_planner import Problem, problem_from_json
from kafila_sidecar.session.coordination.edges import FormedLink, is_another_trip, planned_trips, predicted_path
from kafila_sidecar.session.coordination.mesh import Mesh
from kafila_sidecar.session.driving.roster import Roster
from tests.support.plans import MODEL, problem_of

STRICT, LOOSE = "address-and-port-dependent", "address-dependent"
EI = "endpoint-independent"


def problem(objective: str = "", **members: tuple[str, str, bool]) -> Problem:
    entries = [{"name": n, "mapping": m, "filtering": f, "udp": udp} for n, (m, f, udp) in members.items()]
    return problem_from_json({"model": MODEL, "members": entries, **({"objective": objective} if objective else {})})


@pytest.mark.parametrize(
    ("oak", "elm", "path"),
    [
        ((EI, STRICT, True), (EI, STRICT, True), "direct"),
        ((EI, STRICT, True), (STRICT, STRICT, True), "relay"),
        ((EI, LOOSE, True), (STRICT, STRICT, True), "direct"),
        ((STRICT, STRICT, True), (STRICT, STRICT, True), "relay"),
        ((EI, EI, True), (EI, EI, False), "relay"),
        (("unknown", "unknown", True), (EI, EI, True), "relay"),
    ],
)
def test_path_when_predicted_from_two_networks_then_it_follows_the_pair_rule(
    oak: tuple[str, str, bool], elm: tuple[str, str, bool], path: str
) -> None:
    assert predicted_path(problem(oak=oak, elm=elm), "oak", "elm") == path
    assert predicted_path(problem(oak=oak, elm=elm), "elm", "oak") == path


def test_path_when_predicted_as_the_paper_does_then_loose_filtering_counts_as_ordinary() -> None:
    told = problem("paper", oak=(EI, LOOSE, True), elm=(STRICT, STRICT, True))
    assert predicted_path(told, "oak", "elm") == "relay"


def test_path_when_a_member_came_after_the_plan_then_nothing_is_predicted() -> None:
    assert predicted_path(problem(oak=(EI, EI, True)), "oak", "elm") == ""


def test_edges_when_members_report_then_the_latest_counts_and_goes_with_its_member() -> None:
    roster, pair = Roster(["oak", "elm", "ash"]), frozenset(("oak", "elm"))
    roster.linked("oak", "elm", FormedLink("relay", 0.2, 0.5, 0.3))
    roster.linked("elm", "oak", FormedLink("direct", 0.1, 0.5, 0.3))
    roster.linked("oak", "nobody", FormedLink("direct", 0.1, 0.5, 0.3))
    assert {edge: known.path for edge, known in roster.edges.items()} == {pair: "direct"}
    assert roster.edges[pair].formed_s == pytest.approx(0.8)
    roster.members(["oak", "ash"])
    assert roster.edges == {}


def test_trips_when_planned_with_then_those_of_the_members_own_links_by_peer() -> None:
    edges = [
        {"between": ["ada", "bob"], "rtt_s": 0.02, "path": "direct"},
        {"between": ["ada", "cyd"], "rtt_s": None, "path": "direct"},
        {"between": ["bob", "cyd"], "rtt_s": 0.04, "path": "relay"},
    ]
    linked = problem_of("ada", "bob", "cyd", edges=edges)
    assert planned_trips(linked, "ada") == {"bob": 0.02}
    assert planned_trips(linked, "bob") == {"ada": 0.02, "cyd": 0.04}


def test_edge_when_both_ends_tell_what_comes_then_each_is_known_for_who_sends_it() -> None:
    mesh = Mesh()
    mesh.linked("ada", "bob", "direct", 0.02, 3e6)
    mesh.linked("bob", "ada", "direct", 0.02, 1e6)
    mesh.linked("ada", "bob", "direct", 0.03, 2e6)
    (edge,) = mesh.entries(["ada", "bob"])
    assert edge == {"between": ["ada", "bob"], "rtt_s": 0.03, "path": "direct", "bytes_per_s": {"bob": 2e6, "ada": 1e6}}
    (read,) = problem_of("ada", "bob", edges=[edge]).edges
    assert read.bytes_per_s == (1e6, 2e6)


def test_edge_when_its_path_is_another_or_a_speed_is_not_known_then_the_old_one_is_forgotten() -> None:
    mesh = Mesh()
    mesh.linked("ada", "bob", "direct", 0.02, 3e6)
    mesh.linked("bob", "ada", "direct", 0.02, 1e6)
    mesh.linked("ada", "bob", "relay", 0.05, 5e5)
    assert mesh.entries(["ada", "bob"])[0]["bytes_per_s"] == {"bob": 5e5}
    mesh.linked("ada", "bob", "relay", 0.05)
    assert "bytes_per_s" not in mesh.entries(["ada", "bob"])[0]


@pytest.mark.parametrize(
    ("planned_s", "now_s", "expected"),
    [
        (0.016, 0.003, True),
        (0.0003, 0.0009, False),
        (0.020, 0.024, False),
        (0.020, 0.030, True),
        (0.02, 0.0, False),
    ],
)
def test_trip_when_another_than_planned_with_then_worth_telling(planned_s: float, now_s: float, expected: bool) -> None:
    assert is_another_trip(planned_s, now_s) is expected


@pytest.mark.parametrize("broken", [True, False])
def test_edge_when_its_link_is_down_then_the_planner_knows_it_as_it_was_unless_it_broke(broken: bool) -> None:
    """One that no plan needs any more is closed, and a guess in its place may look better than it is."""
    mesh = Mesh()
    mesh.linked("ada", "bob", "direct", 0.04)
    known = mesh.entries(("ada", "bob"))
    assert [one["rtt_s"] for one in known] == [0.04]
    mesh.unlinked("bob", "ada", broken=broken)
    assert mesh.entries(("ada", "bob")) == ([] if broken else known)
    mesh.moved("bob")  # elsewhere it may be another one
    assert mesh.entries(("ada", "bob")) == []
    mesh.linked("ada", "bob", "relay", 0.04)
    mesh.linked("bob", "ada", "relay", 0.04)
    assert len(mesh.entries(("ada", "bob"))) == 1
    mesh.moved("bob")  # the link stands
    assert len(mesh.entries(("ada", "bob"))) == 1
    mesh.unlinked("bob", "ada", broken=broken)
    assert mesh.entries(("ada", "bob")) == []  # a direct path may be found yet
    mesh.linked("ada", "bob", "direct", 0.04)
    mesh.keep(("ada",))  # who is another one when it comes back
    mesh.keep(("ada", "bob"))
    assert mesh.entries(("ada", "bob")) == []
