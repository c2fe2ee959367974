"""A member's sidecar is killed in the middle of an answer: every client hears who was lost, and nothing hangs."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NAMES, form, until
from tests.support.cluster import Cluster, ClusterMember, kill, make_cluster

TINY = "kafila/tiny"
LONG = {"temperature": 0, "num_predict": 900, "stop": ["never said"]}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    below = tmp_path_factory.mktemp("loss")
    folder = below / "tiny"
    command = [sys.executable, "-m", "tests.support.tiny", str(folder), "--set", "num_hidden_layers=12",
               "--set", "eos_token_id=258"]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    with make_cluster(*NAMES, folders=(folder,), below=below) as made:
        yield made


class Client(threading.Thread):
    """Streams one answer and keeps what ended it."""

    def __init__(self, member: ClusterMember, model: str) -> None:
        super().__init__(daemon=True)
        self.member, self.model = member, model
        self.chunks = 0
        self.error = ""
        self.ended_at = 0.0

    def run(self) -> None:
        body = {"model": self.model, "prompt": "once", "raw": True, "options": LONG}
        call = urllib.request.Request(
            f"{self.member.url}/api/generate", json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(call, timeout=60) as answer:
                for line in answer:
                    self.chunks += 1
                    self.error = json.loads(line).get("error", "")
        except urllib.error.HTTPError as error:
            with error:
                self.error = error.read().decode()
        except OSError as error:
            self.error = f"connection: {error}"
        self.ended_at = time.monotonic()


@pytest.mark.parametrize("victim", NAMES)
def test_answer_when_a_sidecar_is_killed_then_every_client_hears_who_was_lost(victim: str, cluster: Cluster) -> None:
    session = form(cluster, TINY, "--concurrency", "3")
    clients = [Client(member, session["vehicle"]["name"]) for member in cluster.members]
    for client in clients:
        client.start()
    until(lambda: all(client.chunks > 2 for client in clients), 30, 0.01)
    member = next(member for member in cluster.members if member.name == victim)
    killed_at = time.monotonic()
    kill(member.sidecar_pid())
    for client in clients:
        client.join(30)
        assert client.ended_at - killed_at < 5.0, f"{client.member.name} waited too long"
        lost = "this machine" if client.member is member else victim
        assert lost in client.error, f"{client.member.name} heard {client.error!r} after {client.chunks} chunks"
    for one in cluster.members:
        assert one.request("/api/version", timeout_s=5)[0] == 200
    until(lambda: member.request("/api/session/list", timeout_s=5)[0] == 200, 20)
