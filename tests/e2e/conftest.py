"""Real processes: rendezvous, model host, three `ollama serve` with their sidecars."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import OLLAMA, Cluster, ClusterMember, make_cluster
from tests.support.smollm2 import smollm2_folder

SMOLLM2 = "kafila/SmolLM2-135M-Instruct-f32"
NAMES = ("ada", "bob", "cyd")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three members and no session yet."""
    with make_cluster(*NAMES, folders=(smollm2_folder(),), below=tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> dict[str, Any]:
    """A session of all three that is ready, as the first member knows it."""
    return form(cluster, SMOLLM2)


@pytest.fixture(params=range(3), ids=NAMES)
def member(request: pytest.FixtureRequest, cluster: Cluster, session: dict[str, Any]) -> ClusterMember:
    """Each of the three in turn, in a session that is ready."""
    return cluster.members[int(request.param)]


def model_of(session: dict[str, Any]) -> str:
    """By which name it is asked."""
    return str(session["vehicle"]["name"])


def create(member: ClusterMember, model: str, *options: str) -> tuple[str, "subprocess.Popen[str]"]:
    """`ollama session create`: the code, and the command that goes on until the session is ready."""
    process = start(member, "session", "create", model, *options)
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if match := re.search(r"\b\d+(?:-[a-z]+){3}(?:@\S+)?", line):
            return match.group(), process
    raise AssertionError(f"no code was printed:\n{shown}")


def start(member: ClusterMember, *arguments: str) -> "subprocess.Popen[str]":
    """The member's command line, running."""
    with member.inside():
        return subprocess.Popen(
            [str(OLLAMA), *arguments],
            env=dict(member.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )


def form(cluster: Cluster, model: str, *options: str) -> dict[str, Any]:
    """A session of all members, formed by the command lines that people type."""
    first, *others = cluster.members
    wanted = ("--members", str(len(cluster.members)), "--require", "all", "--context", "1024", "--concurrency", "2")
    code, creating = create(first, model, *wanted, *options)
    joining = [start(member, "session", "join", code, "--yes") for member in others]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=240)
        assert command.returncode == 0, out
    for member in cluster.members:
        until(lambda member=member: member.session().get("state") == "ready", 60)  # type: ignore[misc]
        until(lambda member=member: len(member.request("/api/tags")[1]["models"]) > 0, 30)  # type: ignore[misc]
    return first.session()


def until(condition: Callable[[], Any], deadline_s: float, every_s: float = 0.05) -> float:
    """Waits for a condition; returns the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > deadline_s:
            raise AssertionError(f"it did not come true within {deadline_s} s")
        time.sleep(every_s)
    return time.monotonic() - began
