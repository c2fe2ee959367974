"""Real processes: members fetch while idle what a loss would need, say so, and go on from it when one is lost."""

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NAMES, SMOLLM2, create, start, until
from tests.support.cluster import Cluster, kill, make_cluster
from tests.support.smollm2 import smollm2_folder


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with make_cluster(*NAMES, folders=(smollm2_folder(),), below=tmp_path_factory.mktemp("spares")) as made:
        yield made


def sent_bytes(cluster: Cluster) -> int:
    """By the model host, of weights."""
    with urllib.request.urlopen(f"{cluster.hub}/_counts", timeout=10) as answer:
        return sum(count for name, count in json.load(answer).items() if name.endswith(".safetensors"))


def expected(cluster: Cluster) -> list[str]:
    """What the first member expects of each one's loss."""
    return [member.get("if_lost", "") for member in cluster.members[0].session()["members"]]


def is_ready_for_any_loss(cluster: Cluster) -> bool:
    """Whether the others would go on without any one, and fetch nothing for that."""
    return all(re.fullmatch(r"goes on after about \d+ s", told) for told in expected(cluster))


@pytest.mark.timeout(180)
def test_session_when_it_was_idle_and_a_member_is_lost_then_nothing_is_fetched_for_that(cluster: Cluster) -> None:
    code, creating = create(cluster.members[0], SMOLLM2, "--members", "3", "--require", "all", "--spare", "2GB")
    joining = [start(one, "session", "join", code, "--yes", "--spare", "2GB") for one in cluster.members[1:]]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    first, lost = cluster.members[0], cluster.members[1]
    until(lambda: all(told.startswith("goes on after about ") for told in expected(cluster)), 60)
    assert "IF LOST" in first.ollama("session", "status", check=True).stdout
    until(lambda: is_ready_for_any_loss(cluster), 60)
    before = sent_bytes(cluster)
    kill(lost.sidecar_pid())
    until(lambda: "was lost: " in first.process.log.read_text(errors="replace"), 60)
    until(lambda: first.session().get("state") == "ready", 60)
    assert sent_bytes(cluster) == before
    said = next(line for line in first.process.log.read_text().splitlines() if "plan_changed" in line)
    assert f"{lost.name} was lost: " in said
    assert "on its disk, about " in said
