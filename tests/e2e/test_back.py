"""Machines that were lost come back by themselves: nothing is typed, and the same model answers again."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import NAMES, form, until
from tests.support.cluster import Cluster, ClusterMember, kill, kill_all, make_cluster

TINY = "kafila/tiny"
LONG = {"temperature": 0, "num_predict": 900, "stop": ["never said"]}
BACK_S = 10.0  # from going on until everybody sees it ready again
ASKED: dict[str, Any] = {
    "prompt": "once",
    "raw": True,
    "stream": False,
    "options": {"temperature": 0, "num_predict": 8},
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    below = tmp_path_factory.mktemp("back")
    folder = below / "tiny"
    command = [sys.executable, "-m", "tests.support.tiny", str(folder), "--set", "num_hidden_layers=12",
               "--set", "eos_token_id=258"]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    with make_cluster(*NAMES, folders=(folder,), below=below) as made:
        yield made


def streaming(member: ClusterMember, model: str) -> threading.Event:
    """Asks for a long answer; set once it is being told."""
    told = threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            body = {"model": model, "prompt": "once", "raw": True, "options": LONG}
            for _ in member.lines("/api/generate", body):
                told.set()

    threading.Thread(target=read, daemon=True).start()
    return told


def answer(member: ClusterMember, model: str) -> str:
    status, told = member.request("/api/generate", {"model": model, **ASKED}, timeout_s=120)
    assert status == 200, told
    return str(told["response"])


def all_are_ready(cluster: Cluster) -> bool:
    return all(len(present(member)) == len(cluster.members) for member in cluster.members)


def present(member: ClusterMember) -> list[str]:
    """Who is in the session that is ready, as this member sees it."""
    try:
        session = member.session()
    except OSError:
        return []
    if session.get("state") != "ready":
        return []
    return [one["name"] for one in session["members"] if one["present"]]


@pytest.mark.timeout(240)  # on a busy machine
def test_session_when_all_machines_lose_power_then_it_answers_again_by_itself(cluster: Cluster) -> None:
    session = form(cluster, TINY)
    model, code = session["vehicle"]["name"], session["code"]
    before = answer(cluster.members[1], model)
    for told in [streaming(member, model) for member in cluster.members]:
        assert told.wait(60)
    kill_all(cluster.members)
    for member in cluster.members:
        cluster.start_again(member)
    until(lambda: all_are_ready(cluster), 60, 0.2)
    for member in cluster.members:
        assert answer(member, model) == before
    assert cluster.members[0].session()["code"] == code


@pytest.mark.parametrize("victim", NAMES)
def test_member_when_its_sidecar_is_killed_then_it_is_back_by_itself(victim: str, cluster: Cluster) -> None:
    model = form(cluster, TINY)["vehicle"]["name"]
    before = answer(cluster.members[0], model)
    member = next(one for one in cluster.members if one.name == victim)
    kill(member.sidecar_pid())
    until(lambda: not all_are_ready(cluster), 10, 0.05)
    assert answer(member, model) == before  # it waits until the machine is back
    until(lambda: all_are_ready(cluster), 60, 0.1)
    assert answer(member, model) == before


LONG_SLEEP = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("who", "asleep_s"),
    [
        pytest.param(2, 25.0, id="a member for 25 s"),
        pytest.param(2, 60.0, id="a member for 60 s", marks=LONG_SLEEP),
        pytest.param(0, 60.0, id="the host for 60 s", marks=LONG_SLEEP),
    ],
)
def test_member_when_it_slept_then_it_is_back_within_ten_seconds(who: int, asleep_s: float, cluster: Cluster) -> None:
    model = form(cluster, TINY)["vehicle"]["name"]
    sleeper = cluster.members[who]
    others = [member for member in cluster.members if member is not sleeper]
    before = answer(sleeper, model)
    pids = sleeper.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    until(lambda: all(len(present(one)) == 2 for one in others), asleep_s + 30, 0.1)
    time.sleep(max(0.0, stopped_at + asleep_s - time.monotonic()))
    woke_at = time.monotonic()
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
    until(lambda: all_are_ready(cluster), BACK_S, 0.05)
    print(f"ready again after {time.monotonic() - woke_at:.1f} s")
    assert answer(sleeper, model) == before


def test_server_when_it_was_started_again_then_what_is_asked_at_once_waits_for_the_session(cluster: Cluster) -> None:
    model = form(cluster, TINY)["vehicle"]["name"]
    member = cluster.members[1]
    before = answer(member, model)
    kill_all([member])
    cluster.start_again(member)
    until(lambda: is_listening(member), 60, 0.01)
    asked = {"model": model, "prompt": "once", "max_tokens": 8, "temperature": 0}
    other = ThreadPoolExecutor().submit(member.request, "/v1/completions", asked, timeout_s=120)
    assert answer(member, model) == before
    assert other.result()[0] == 200


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/api/generate", '{"error":"the Kafila sidecar on this machine is not running'),
        ("/v1/completions", 'data: {"error":{"message":"the Kafila sidecar on this machine is not running'),
    ],
)
def test_answer_when_its_own_sidecar_dies_then_each_api_says_so_in_its_own_form(
    path: str, last: str, cluster: Cluster
) -> None:
    model = form(cluster, TINY)["vehicle"]["name"]
    member = cluster.members[2]
    body = {"model": model, "prompt": "once", "raw": True, "stream": True, "max_tokens": 900, "options": LONG}
    call = urllib.request.Request(
        member.url + path, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(call, timeout=60) as told:
        first = told.readline()
        kill(member.sidecar_pid())
        lines = [line.decode() for line in (first, *told) if line.strip()]
    assert lines[-1].startswith(last), lines[-1]


def is_listening(member: ClusterMember) -> bool:
    host, _, port = member.host.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
