"""What goes wrong is said in one sentence, with a non-zero exit and the HTTP status that belongs to it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import create, start, until
from tests.support.cluster import Cluster, ClusterMember, free_port, kill, make_cluster
from tests.support.tiny_gguf import write_tiny_gguf

TINY = "kafila/tiny"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members and a tiny random model: nobody needs a sensible answer here."""
    below = tmp_path_factory.mktemp("errors")
    folder = below / "tiny"
    subprocess.run([sys.executable, "-m", "tests.support.tiny", str(folder)], check=True, timeout=60)
    with make_cluster("ada", "bob", folders=(folder,), below=below) as made:
        yield made


@pytest.fixture(scope="module")
def code(cluster: Cluster) -> Iterator[str]:
    """A session that waits for one more member."""
    made, process = create(cluster.members[0], TINY, "--members", "2")
    yield made
    process.terminate()
    process.communicate(timeout=10)


def wrong(code: str) -> str:
    """The same room with another last word."""
    number, first, second, last = code.split("-")
    return f"{number}-{first}-{second}-{'zoo' if last != 'zoo' else 'abandon'}"


def session_open(member: ClusterMember, code: str) -> tuple[int, str]:
    status, answer = member.request("/api/session/open", {"code": code}, timeout_s=30)
    return status, str(answer["error"])


def assert_one_sentence(text: str) -> None:
    assert "Traceback" not in text
    assert "grpc" not in text.lower()
    assert 0 < len(text.strip().splitlines()) <= 2


def test_join_when_the_code_is_wrong_then_permission_is_denied(cluster: Cluster, code: str) -> None:
    bob = cluster.members[1]
    status, sentence = session_open(bob, wrong(code))
    assert status == 403
    assert_one_sentence(sentence)
    shown = bob.ollama("session", "join", wrong(code), "--yes")
    assert shown.returncode != 0
    assert sentence in shown.stderr + shown.stdout


@pytest.mark.parametrize(
    "text", ["", "ocean-velvet-lamp", "7-ocean-velvet", "7-ocean-velvet-lampp", "x" * 5000, "7-🦆-a-b"]
)
def test_join_when_the_code_is_malformed_then_it_says_what_is_wrong(cluster: Cluster, text: str) -> None:
    status, sentence = session_open(cluster.members[1], text)
    assert status == 400
    assert_one_sentence(sentence)
    assert len(sentence) < 300


def test_join_when_no_session_has_the_number_then_it_is_not_found(cluster: Cluster, code: str) -> None:
    status, sentence = session_open(cluster.members[1], "909-" + code.split("-", 1)[1])
    assert status == 404
    assert_one_sentence(sentence)


def test_create_when_the_model_is_unknown_then_it_is_not_found(cluster: Cluster) -> None:
    ada = cluster.members[0]
    status, answer = ada.request("/api/session/create", {"model": "nobody/nothing"})
    assert status == 404
    shown = ada.ollama("session", "create", "nobody/nothing")
    assert shown.returncode != 0
    assert answer["error"] in shown.stderr + shown.stdout


def test_status_when_there_is_no_such_session_then_it_is_not_found(cluster: Cluster) -> None:
    bob = cluster.members[1]
    status, _ = bob.request("/api/session/leave", {"session": "4711"})
    assert status == 404
    assert bob.ollama("session", "leave", "4711").returncode != 0


def test_create_when_the_rendezvous_is_unreachable_then_it_says_so_in_time(cluster: Cluster) -> None:
    body = {"model": TINY, "rendezvous": f"grpc+insecure://127.0.0.1:{free_port()}"}
    status, answer = cluster.members[0].request("/api/session/create", body, timeout_s=10)
    assert status == 503
    assert "rendezvous" in answer["error"]


def test_create_when_the_model_is_too_large_then_it_names_the_member_and_the_bytes(cluster: Cluster) -> None:
    ada = cluster.members[0]
    options = ("--members", "1", "--memory", "300KB")
    shown = ada.ollama("session", "create", TINY, *options, timeout_s=60)
    assert shown.returncode != 0
    assert "ada" in shown.stdout + shown.stderr
    failed = next(s for s in ada.request("/api/session/list")[1]["sessions"] if s["state"] == "closed")
    assert failed["failure_code"] == "FAILED_PRECONDITION"
    status, answer = ada.request(f"/api/session/watch?session={failed['id']}")
    assert status in (200, 400)
    assert failed["failure"] in str(answer)


def test_create_when_options_make_no_sense_then_it_names_them(cluster: Cluster) -> None:
    ada = cluster.members[0]
    for field, value in {"strategy": "magic", "objective": "fun", "members": 1000, "context_tokens": 10**7}.items():
        status, answer = ada.request("/api/session/create", {"model": TINY, field: value})
        assert status == 400, field
        assert str(value) in answer["error"].replace(",", "")


def test_join_when_the_session_is_full_then_it_is_refused(cluster: Cluster) -> None:
    ada, bob = cluster.members
    made, process = create(ada, TINY, "--members", "1")
    process.communicate(timeout=60)
    status, sentence = session_open(bob, made)
    assert status == 400
    assert "full" in sentence
    ada.ollama("session", "leave", made)


def test_browser_when_a_page_elsewhere_posts_then_it_is_refused(cluster: Cluster) -> None:
    import http.client

    for header in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Content-Type": "text/plain"}):
        connection = http.client.HTTPConnection(cluster.members[0].host, timeout=10)
        headers: dict[str, Any] = {"Content-Type": "application/json", **header}
        connection.request("POST", "/api/session/create", b'{"model": "kafila/tiny"}', headers)
        assert connection.getresponse().status == 403, header
        connection.close()


def test_join_when_everybody_came_then_the_session_answers_and_can_be_left(cluster: Cluster, code: str) -> None:
    ada, bob = cluster.members
    joining = start(bob, "session", "join", code, "--yes")
    out, _ = joining.communicate(timeout=90)
    assert joining.returncode == 0, out
    name = bob.session()["vehicle"]["name"]
    until(lambda: name in str(bob.request("/api/tags")[1]), 20)
    body = {"model": name, "prompt": "hello", "stream": False, "options": {"num_predict": 8}}
    assert bob.request("/api/generate", body)[0] == 200
    left = bob.ollama("session", "leave", code)
    assert left.returncode == 0, left.stderr
    until(lambda: name not in str(bob.request("/api/tags")[1]), 20)
    until(lambda: [m["name"] for m in ada.session().get("members", [])] == ["ada"] or not ada.session(), 20)


def test_data_when_sessions_ran_then_keys_are_private(cluster: Cluster) -> None:
    for path in Path(cluster.folder).glob("*/kafila/sessions/*"):
        assert path.stat().st_mode & 0o077 == 0
        for file in path.glob("*.pem"):
            assert file.stat().st_mode & 0o077 == 0, file


def test_local_model_when_the_sidecar_dies_then_it_still_answers(cluster: Cluster, tmp_path: Path) -> None:
    bob = cluster.members[1]
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM {write_tiny_gguf(tmp_path / 'tiny.gguf')}\n")
    made = bob.ollama("create", "local", "-f", str(modelfile))
    assert made.returncode == 0, made.stderr
    body = {"model": "local", "prompt": "abc", "stream": False, "options": {"num_predict": 4, "num_ctx": 128}}
    status, before = bob.request("/api/generate", body)
    assert (status, before["done"]) == (200, True), before
    kill(bob.sidecar_pid())
    status, after = bob.request("/api/generate", body)
    assert (status, after["done"]) == (200, True), after
    until(lambda: bob.request("/api/session/list", timeout_s=5)[0] == 200, 20)


def test_server_when_it_is_killed_then_its_sidecar_ends_too(cluster: Cluster) -> None:
    member = cluster.start_member("dan")
    pid = member.sidecar_pid()
    kill(member.process.popen.pid)
    until(lambda: not Path(f"/proc/{pid}").exists(), 10)
    member.process.popen.wait(5)
