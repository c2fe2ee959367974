"""A member's sidecar is killed in the middle of answers: those that were typed elsewhere go on, and nothing hangs."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NAMES, SMOLLM2, form, until
from tests.support.cluster import Cluster, ClusterMember, kill, make_cluster
from tests.support.smollm2 import smollm2_folder

LONG = {"temperature": 0, "num_predict": 160, "stop": ["never said"]}
QUESTION = [{"role": "user", "content": "Tell a long story about a fisherman and the sea."}]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with make_cluster(*NAMES, folders=(smollm2_folder(),), below=tmp_path_factory.mktemp("loss")) as made:
        yield made


class Client(threading.Thread):
    """Streams one answer and keeps what was said, and what ended it."""

    def __init__(self, member: ClusterMember, model: str) -> None:
        super().__init__(daemon=True)
        self.member, self.model = member, model
        self.chunks = 0
        self.text = ""
        self.error = ""
        self.tokens = 0
        self.longest_pause_s = 0.0

    def run(self) -> None:
        body = {"model": self.model, "messages": QUESTION, "options": LONG}
        call = urllib.request.Request(
            f"{self.member.url}/api/chat", json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(call, timeout=120) as answer:
                before = time.monotonic()
                for line in answer:
                    self._take(json.loads(line))
                    self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - before)
                    before = time.monotonic()
        except urllib.error.HTTPError as error:
            with error:
                self.error = error.read().decode()
        except OSError as error:
            self.error = f"connection: {error}"

    def _take(self, line: dict[str, object]) -> None:
        self.chunks += 1
        self.error = str(line.get("error", ""))
        message = line.get("message")
        self.text += str(message.get("content", "")) if isinstance(message, dict) else ""
        self.tokens = int(str(line.get("eval_count", 0)))


class EventClient(threading.Thread):
    """Streams one answer of another API and keeps its events."""

    def __init__(self, member: ClusterMember, path: str, model: str) -> None:
        super().__init__(daemon=True)
        body = {"model": model, "messages": QUESTION, "stream": True, "max_tokens": 900, "temperature": 0}
        self._call = urllib.request.Request(
            member.url + path, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        self.events: list[str] = []

    def run(self) -> None:
        with urllib.request.urlopen(self._call, timeout=120) as answer:
            for line in answer:
                if line.strip():
                    self.events.append(line.decode().strip())


def asked(members: list[ClusterMember], model: str) -> list[Client]:
    clients = [Client(member, model) for member in members]
    for client in clients:
        client.start()
    return clients


@pytest.mark.parametrize("role", ["head", "stage"])
def test_answer_when_a_sidecar_is_killed_then_those_typed_elsewhere_go_on(role: str, cluster: Cluster) -> None:
    session = form(cluster, SMOLLM2, "--concurrency", "5")
    model = session["vehicle"]["name"]
    (alone,) = asked(cluster.members[:1], model)
    alone.join(120)
    assert (alone.error, alone.tokens) == ("", 160)
    names = [stage["member"] for stage in session["stages"]]
    victim = next(member for member in cluster.members if member.name == names[0 if role == "head" else -1])
    clients = asked(cluster.members, model)
    others = [EventClient(victim, path, model) for path in ("/v1/chat/completions", "/v1/messages")]
    for other in others:
        other.start()
    until(lambda: all(client.chunks > 10 for client in clients) and all(len(one.events) > 10 for one in others), 60)
    kill(victim.sidecar_pid())
    for client in clients:
        client.join(120)
        if client.member is victim:
            assert "this machine" in client.error
        else:
            heard = f"{client.member.name} after {client.chunks} chunks and {client.longest_pause_s:.1f} s"
            assert (client.error, client.text, client.tokens) == ("", alone.text, 160), heard
            print(f"{role} lost: {client.member.name} paused for {client.longest_pause_s:.1f} s")
    for other in others:  # a clean end would look like a whole answer
        other.join(20)
        error = json.loads(other.events[-1].removeprefix("data: "))["error"]
        assert "this machine" in error["message"]
    for one in cluster.members:
        assert one.request("/api/version", timeout_s=5)[0] == 200
    until(lambda: victim.request("/api/session/list", timeout_s=5)[0] == 200, 20)
