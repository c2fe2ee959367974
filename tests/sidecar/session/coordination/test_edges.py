"""Predicted beside achieved: the pair rule on the planner's input, and what members reported of their links."""

import pytest

from kafila_planner import Problem, problem_from_json
from kafila_sidecar.session.coordination.edges import FormedLink, predicted_path
from kafila_sidecar.session.driving.roster import Roster
from tests.support.plans import MODEL

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
