"""Real machines: one lends next to nothing, and another is kicked; the others go on."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import create, start, until
from tests.support.cluster import Cluster, ClusterMember, make_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.mlx]

TINY = "kafila/tiny"
DEADLINE_S = 90.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    below = tmp_path_factory.mktemp("members")
    folder = below / "tiny"
    subprocess.run([sys.executable, "-m", "tests.support.tiny", str(folder)], check=True, timeout=60)
    with make_cluster("ada", "bob", "cyd", folders=(folder,), below=below) as made:
        yield made


def answers(member: ClusterMember, model: str) -> bool:
    body = {"model": model, "prompt": "hello", "stream": False, "options": {"num_predict": 4}}
    return member.request("/api/generate", body)[0] == 200


def stages(member: ClusterMember) -> set[str]:
    return {stage["member"] for stage in member.session().get("stages", [])}


def shown(member: ClusterMember, name: str) -> dict[str, Any]:
    """How this member shows another one."""
    return next(dict(one) for one in member.session()["members"] if one["name"] == name)


def test_member_when_it_lends_a_megabyte_then_it_is_an_entry_point_and_whoever_is_kicked_takes_nobody_along(
    cluster: Cluster,
) -> None:
    ada, bob, cyd = cluster.members
    code, creating = create(ada, TINY, "--members", "3", "--objective", "paper")
    joining = [
        start(bob, "session", "join", code, "--yes"),
        start(cyd, "session", "join", code, "--yes", "--memory", "1MB"),
    ]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=DEADLINE_S)
        assert command.returncode == 0, out
    for member in cluster.members:
        until(lambda member=member: member.session().get("state") == "ready", DEADLINE_S)  # type: ignore[misc]
        assert stages(member) == {"ada", "bob"}
        assert "cyd offers 1 MB" in shown(member, "cyd")["doing"]
    model = ada.session()["vehicle"]["name"]
    for member in cluster.members:
        until(lambda member=member: model in str(member.request("/api/tags")[1]), DEADLINE_S)  # type: ignore[misc]
        assert answers(member, model)

    kicked = ada.ollama("session", "kick", "bob")
    assert kicked.returncode == 0, kicked.stderr
    until(lambda: bob.session().get("state") == "closed", DEADLINE_S)
    assert "removed" in bob.session()["failure"]
    assert not answers(bob, model)
    for member in (ada, cyd):
        until(lambda member=member: stages(member) == {"ada"} and member.session()["state"] == "ready", DEADLINE_S)  # type: ignore[misc]
        assert answers(member, model)
    assert bob.ollama("session", "join", code, "--yes").returncode != 0
    assert {one["name"] for one in ada.session()["members"]} == {"ada", "cyd"}
