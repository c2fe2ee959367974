"""What Prometheus is told."""

import shutil
import subprocess
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kafila_sidecar.numbers.happened import Happened
from kafila_sidecar.numbers.served import MOST_MEMBERS, OTHERS, ServedNumbers
from kafila_sidecar.numbers.standing import PresentNumbers, exposition
from tests.support.told_numbers import CIRCUIT, busy_machine, record


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(name, labels)
    return 0.0 if found is None else found


def test_served_when_a_request_ended_then_its_tokens_circuits_and_times_are_counted() -> None:
    registry = CollectorRegistry()
    ServedNumbers(registry).request_ended(record(output_tokens=3, decode_s=0.4), [CIRCUIT, CIRCUIT])
    assert value(registry, "kafila_requests_total", ended="stop") == 1
    assert value(registry, "kafila_prompt_tokens_total") == 12
    assert value(registry, "kafila_output_tokens_total") == 3
    assert value(registry, "kafila_circuits_total") == 3
    assert value(registry, "kafila_token_seconds_sum") == pytest.approx(0.2)
    assert value(registry, "kafila_ttft_seconds_sum") == 2.0
    assert value(registry, "kafila_stage_seconds_count", member="mini") == 2
    assert value(registry, "kafila_stage_seconds_sum", member="mini") == pytest.approx(0.3)
    assert value(registry, "kafila_hop_bytes_total", from_member="anna", to_member="mini") == 20480


def test_served_when_a_request_had_no_token_then_it_counts_in_no_time() -> None:
    registry = CollectorRegistry()
    ServedNumbers(registry).request_ended(record(output_tokens=0, ended="cancelled"), [])
    assert value(registry, "kafila_requests_total", ended="cancelled") == 1
    assert value(registry, "kafila_ttft_seconds_count") == value(registry, "kafila_token_seconds_count") == 0
    assert value(registry, "kafila_prompt_tokens_total") == 0


def test_served_when_an_answer_went_on_after_a_loss_then_its_former_tokens_are_not_counted_again() -> None:
    registry = CollectorRegistry()
    ServedNumbers(registry).request_ended(record(output_tokens=9, replayed_tokens=7), [CIRCUIT])
    assert value(registry, "kafila_output_tokens_total") == 2


def test_served_when_there_were_too_many_members_then_the_later_ones_share_a_label() -> None:
    served = ServedNumbers(CollectorRegistry())
    names = [f"m{number}" for number in range(MOST_MEMBERS + 40)]
    labels = {served.member(name) for name in names}
    assert len(labels) == MOST_MEMBERS + 1
    assert served.member("m0") == "m0"
    assert served.member("m290") == OTHERS


@pytest.mark.parametrize(
    ("looks", "losses", "repairs", "plans"),
    [
        pytest.param([((), 1)], 0, 0, 1, id="the first plan"),
        pytest.param([((), 1), ((), 2)], 0, 0, 2, id="a better plan"),
        pytest.param([((), 1), (("b",), 1), (("b",), 2)], 1, 1, 2, id="a loss, then a plan without it"),
        pytest.param([((), 1), (("b",), 1), ((), 1)], 1, 0, 1, id="a loss that was none"),
        pytest.param([((), 1), (("b",), 1), ((), 1), (("b",), 2)], 2, 1, 2, id="lost twice"),
        pytest.param([(("b",), 0), ((), 1)], 1, 0, 1, id="a loss before any plan"),
        pytest.param([((), 1), (("b", "c"), 2), ((), 3)], 2, 1, 3, id="two at once, and a plan when they are back"),
    ],
)
def test_happened_counts_what_is_other_than_before(
    looks: list[tuple[tuple[str, ...], int]], losses: int, repairs: int, plans: int
) -> None:
    registry = CollectorRegistry()
    happened = Happened(ServedNumbers(registry))
    for gone, epoch in looks:
        happened.look(gone=gone, epoch=epoch)
    told = [value(registry, f"kafila_{name}_total") for name in ("losses", "repairs", "plans")]
    assert told == [losses, repairs, plans]


def test_exposition_when_links_stand_then_they_are_counted_by_path() -> None:
    links = {"b": ("direct", 0.02), "c": ("relay", 0.05), "d": ("direct", 0.0)}
    now = PresentNumbers(version="1.2.3", states=Counter(["ready", "ready", "sleeping"]), links=links)
    families = {one.name: one for one in text_string_to_metric_families(exposition(CollectorRegistry(), now).decode())}
    assert {one.labels["path"]: one.value for one in families["kafila_links"].samples} == {"direct": 2, "relay": 1}
    assert {one.labels["state"]: one.value for one in families["kafila_sessions"].samples} == {
        "ready": 2,
        "sleeping": 1,
    }
    assert {one.labels["member"] for one in families["kafila_link_rtt_seconds"].samples} == {"b", "c"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus) is not installed")
def test_exposition_when_promtool_looks_at_it_then_it_finds_nothing() -> None:
    said = subprocess.run(
        ["promtool", "check", "metrics"], input=busy_machine(), capture_output=True, check=False, timeout=60
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")
