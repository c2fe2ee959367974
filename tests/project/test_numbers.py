"""The numbers that are told, those that the documents list, and those that the dashboard shows are the same ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafila_rendezvous.numbers import Holds, RendezvousNumbers
from tests.support.told_numbers import busy_machine

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(kafila_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
DASHBOARD: dict[str, Any] = json.loads((ROOT / "packaging/grafana/kafila.json").read_text(encoding="utf-8"))
EXPRESSIONS: list[str] = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]

REQUIRED = {
    "timeseries": {
        "legend.calcs",
        "legend.displayMode",
        "legend.placement",
        "legend.showLegend",
        "tooltip.mode",
        "tooltip.sort",
    },
    "stat": {"reduceOptions", "graphMode", "colorMode", "justifyMode", "textMode", "wideLayout", "orientation"},
}
"""Options that Grafana's schema of a panel has no default for, by its type."""

Told = dict[str, tuple[str, frozenset[str]]]
"""Kind and labels, by the name that Prometheus knows."""


def rendezvous() -> bytes:
    registry = CollectorRegistry()
    registry.register(RendezvousNumbers(Holds))
    return generate_latest(registry)


def told() -> Told:
    found: Told = {}
    for family in text_string_to_metric_families((busy_machine() + rendezvous()).decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        found[name] = (family.type, labels)
    return found


def listed() -> Told:
    text = (ROOT / "docs/numbers.md").read_text(encoding="utf-8")
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(text)}


def test_numbers_when_told_then_the_document_lists_them_with_kind_and_labels_and_no_others() -> None:
    assert told() == listed()


def test_numbers_are_named_after_kafila_in_base_units() -> None:
    assert [name for name in told() if not re.fullmatch(r"kafila(_[a-z]+)+", name)] == []
    for name in told():
        assert not re.search(r"_(ms|milliseconds|kb|mb|mib|percent)(_|$)", name), name


def test_labels_hold_nothing_but_what_is_bounded() -> None:
    known = {"ended", "member", "from_member", "to_member", "direction", "version", "state", "path"}
    assert frozenset().union(*(labels for _, labels in told().values())) == known


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_dashboard_shows_what_is_told(expression: str) -> None:
    names = re.findall(r"\bkafila_\w+", expression)
    kinds = {name: kind for name, (kind, _) in told().items()}
    assert names
    for name in names:
        of_histogram = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in kinds or kinds.get(of_histogram) == "histogram", name
    labels = frozenset().union(*(told().get(re.sub("_bucket$", "", name), ("", frozenset()))[1] for name in names))
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert set(group.split(", ")) <= labels | {"le", "instance"}
    assert expression.count("(") == expression.count(")")


def test_dashboard_shows_every_number() -> None:
    shown = " ".join(EXPRESSIONS)
    assert [name for name in told() if name not in shown] == []


def test_dashboard_has_the_shape_that_grafana_imports() -> None:
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 36
    (source,) = DASHBOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        across = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in across for y in range(place["y"], place["y"] + place["h"])}
        assert across.stop <= 24
        assert not cells & taken
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert REQUIRED[panel["type"]] <= {
            f"{one}.{field}" for one, of in panel["options"].items() if isinstance(of, dict) for field in of
        } | set(panel["options"])
        assert [target["refId"] for target in panel["targets"]] == list("ABCDE"[: len(panel["targets"])])
