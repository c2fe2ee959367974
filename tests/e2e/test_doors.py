"""One machine and home, one member, one owner of what is shared."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import create, form, start, until
from tests.support.cluster import OLLAMA, Cluster, free_port, make_cluster

TINY = "kafila/tiny"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    below = tmp_path_factory.mktemp("doors")
    folder = below / "tiny"
    command = [sys.executable, "-m", "tests.support.tiny", str(folder), "--set", "num_hidden_layers=12",
               "--set", "eos_token_id=258"]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    with make_cluster("ada", "bob", folders=(folder,), below=below) as made:
        yield made


def test_machine_when_it_joins_three_times_at_once_then_it_is_a_member_once(cluster: Cluster) -> None:
    ada, bob = cluster.members
    code, creating = create(ada, TINY, "--members", "2", "--context", "1024")
    joining = [start(bob, "session", "join", code, "--yes") for _ in range(3)]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    until(lambda: ada.session()["state"] == "ready", 60)
    assert [one["name"] for one in ada.session()["members"]] == ["ada", "bob"]
    assert len(bob.request("/api/session/list")[1]["sessions"]) == 1
    for member in (bob, ada):
        assert member.ollama("session", "leave").returncode == 0


def test_session_model_when_a_second_server_has_the_same_home_then_it_stays(cluster: Cluster) -> None:
    model = form(cluster, TINY)["vehicle"]["name"]
    ada = cluster.members[0]
    port = free_port()
    environment = {**ada.environment, "OLLAMA_HOST": f"127.0.0.1:{port}"}
    second = cluster.spawn("second", [str(OLLAMA), "serve"], environment)
    until(lambda: "belongs to another Kafila" in second.log_tail(200), 60)
    assert model in [one["name"] for one in ada.request("/api/tags")[1]["models"]]
    status, told = ada.request("/api/generate", {"model": model, "prompt": "once", "stream": False, "raw": True})
    assert status == 200, told
    other_home = {**environment, "KAFILA_HOME": str(ada.home / "another"), "OLLAMA_HOST": f"127.0.0.1:{free_port()}"}
    third = cluster.spawn("third", [str(OLLAMA), "serve"], other_home)
    until(lambda: "sidecar_ready" in third.log_tail(500), 60)
    status, told = ada.request("/api/generate", {"model": model, "prompt": "once", "stream": False, "raw": True})
    assert status == 200, told
    second.stop()
    third.stop()
