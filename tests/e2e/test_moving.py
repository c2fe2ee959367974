"""A host that embeds the rendezvous is killed: the others go on, and somebody joins by the successor's code."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import NAMES, create, start, until
from tests.support.cluster import Cluster, ClusterMember

TINY = "kafila/tiny"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four members, none of whom is configured with a rendezvous."""
    below = tmp_path_factory.mktemp("moving")
    folder = below / "tiny"
    command = [sys.executable, "-m", "tests.support.tiny", str(folder), "--set", "num_hidden_layers=12"]
    subprocess.run(command, check=True, timeout=60)
    with Cluster(below) as made:
        made.start_model_host(folder)
        for name in (*NAMES, "dan"):
            made.start_member(name)
        yield made


def children(pid: int) -> list[int]:
    """Of one process, and theirs, the youngest last."""
    listed = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return [*listed, *(below for child in listed for below in children(child))]


def power_off(member: ClusterMember) -> None:
    """Every process of that machine is gone at once."""
    pid = member.process.popen.pid
    for one in (pid, *children(pid)):
        os.kill(one, signal.SIGKILL)
    member.process.popen.wait()


def address_in(code: str) -> str:
    return code.partition("@")[2]


@pytest.mark.timeout(240)
def test_embedded_rendezvous_when_its_host_is_killed_then_the_others_go_on_and_the_successors_code_is_good(
    cluster: Cluster,
) -> None:
    ada, bob, cyd, dan = cluster.members
    code, creating = create(ada, TINY, "--members", "3", "--context", "256")
    assert address_in(code)
    joining = [start(member, "session", "join", code, "--yes") for member in (bob, cyd)]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    for member in (ada, bob, cyd):
        until(lambda member=member: member.session().get("state") == "ready", 60)  # type: ignore[misc]

    power_off(ada)
    until(lambda: bob.session().get("host") == cyd.session().get("host") != "ada", 40)
    heir, other = (bob, cyd) if bob.session()["host"] == "bob" else (cyd, bob)
    until(lambda: address_in(heir.session().get("code", "")) not in ("", address_in(code)), 40)
    new = heir.session()["code"]
    assert not other.session().get("code"), "the old code is dead, and who joined by it does not show it"
    shown = heir.ollama("session", "code", check=True).stdout
    assert re.search(re.escape(new), shown)
    for member in (bob, cyd):
        until(lambda member=member: member.session().get("state") == "ready", 60)  # type: ignore[misc]
        until(lambda member=member: member.session().get("joining") == "open", 30)  # type: ignore[misc]

    joined = dan.ollama("session", "join", new, "--yes", timeout_s=100)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    for member in (bob, cyd, dan):
        until(lambda member=member: len(member.session().get("members", [])) == 3, 30)  # type: ignore[misc]
        until(lambda member=member: member.session().get("state") == "ready", 60)  # type: ignore[misc]
        model = member.session()["vehicle"]["name"]
        body = {"model": model, "prompt": "once", "raw": True, "stream": False, "options": {"num_predict": 4}}
        until(lambda member=member, body=body: member.request("/api/generate", body)[0] == 200, 30, 0.5)  # type: ignore[misc]
