"""What real members tell of themselves: numbers, traces, logs, and a report without anybody's names."""

import json
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import NAMES
from tests.support.cluster import Cluster, ClusterMember, owner_headers

ASKED = "What is the capital of France?"


@pytest.fixture(scope="module")
def head(cluster: Cluster, session: dict[str, Any]) -> ClusterMember:
    """Which has answered."""
    number = NAMES.index(next(stage["member"] for stage in session["stages"] if stage["head"]))
    done = cluster.members[number].ollama("run", "--session", session["code"], ASKED)
    assert done.returncode == 0, done.stderr
    return cluster.members[number]


def numbers(member: ClusterMember) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    asked = urllib.request.Request(f"{member.url}/metrics", headers=owner_headers(member.environment["KAFILA_HOME"]))
    with urllib.request.urlopen(asked, timeout=20) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def test_metrics_when_an_answer_was_given_then_the_head_counted_it(head: ClusterMember) -> None:
    told = numbers(head)
    assert told["kafila_output_tokens_total", frozenset()] >= 2
    assert told["kafila_ttft_seconds_count", frozenset()] >= 1
    assert told["kafila_plans_total", frozenset()] >= 1
    assert told["kafila_sessions", frozenset({("state", "ready")})] == 1
    assert sum(value for (name, _), value in told.items() if name == "kafila_links") >= 1
    for name in NAMES:
        assert told["kafila_stage_seconds_count", frozenset({("member", name)})] >= 1


def test_metrics_hold_no_code_and_no_prompt(head: ClusterMember, session: dict[str, Any]) -> None:
    said = repr(numbers(head))
    assert session["code"].partition("@")[0] not in said
    assert "France" not in said


def test_trace_when_an_answer_was_given_then_every_member_shows_it(cluster: Cluster, head: ClusterMember) -> None:
    for member in cluster.members:
        shown = member.ollama("session", "trace")
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("Request ")
        record = json.loads(member.ollama("session", "trace", "--json").stdout)
        assert {stage["member"] for stage in record["stages"]} == set(NAMES)


def test_status_when_asked_for_json_then_plan_and_trace_are_objects(head: ClusterMember) -> None:
    shown = json.loads(head.ollama("session", "status", "--json").stdout)
    assert shown["plan"]["stages"]
    assert shown["last_trace"]["output_tokens"] >= 2
    assert all(isinstance(member["usable_memory_bytes"], int) for member in shown["members"])


def test_logs_and_report_when_a_session_ran_then_they_tell_of_it_and_of_nobody(
    head: ClusterMember, session: dict[str, Any], tmp_path: Path
) -> None:
    entries = [json.loads(one) for one in head.ollama("session", "logs", "--json").stdout.splitlines()]
    assert {"server", "sidecar"} == {entry["from"] for entry in entries}
    assert any(entry["said"].startswith("path_chosen peer=<member>") for entry in entries)
    path = tmp_path / "report.tar.gz"
    packed = head.ollama("session", "report", "-o", str(path))
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(path) as archive:
        files = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in files.items() if file}
    assert "ttft_s" in texts["kafila-report/traces.jsonl"]
    assert '"plan"' in texts["kafila-report/plans.jsonl"]
    for name, text in texts.items():
        for secret in (
            *(f'"{one}"' for one in NAMES),
            session["code"].partition("@")[0],
            "127.0.0.1",
            "France",
            "Paris",
        ):
            assert secret not in text, name
