"""Real sessions behind real kernel NAT: three `ollama serve`, each in a network namespace behind its own router."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafila_rendezvous.certificate import keep_key_pair
from tests.e2e.conftest import NAMES, SMOLLM2, start, until
from tests.support.cluster import Cluster, ClusterMember, Process
from tests.support.natlab import Behaviour, NatLab, Router, Space, missing
from tests.support.smollm2 import smollm2_folder

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "none")

PERMISSIVE, ORDINARY, RESTRICTIVE = Behaviour.PERMISSIVE, Behaviour.ORDINARY, Behaviour.RESTRICTIVE
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
COUNT = [{"role": "user", "content": "Count from 1 to 60, with commas."}]
RENDEZVOUS_PORT = 7770
TOKENS = 40  # some seconds on a busy machine
NOTICED_S = 12.0  # members ask where they are seen from every 10 s


class Homes:
    """The members, each on a machine behind a router; what talks to a member does so on its machine."""

    def __init__(self, lab: NatLab, folder: Path) -> None:
        self.cluster = Cluster(folder)
        lab.callback(self.cluster.stop)
        self.routers: list[Router] = []
        self.behaviours = [ORDINARY] * len(NAMES)
        self.spaces: dict[str, Space] = {}
        self._server = lab.host("rendezvous", "0.1", "0.2")
        self._rendezvous = self._start_rendezvous()
        fingerprint = keep_key_pair(folder / "certificate").fingerprint
        self.cluster.rendezvous = f"{self._server.address}:{RENDEZVOUS_PORT}#{fingerprint}"
        for name in NAMES:
            router = lab.router(ORDINARY)
            self.routers.append(router)
            self.spaces[name] = lab.home(name, router)
            with self.spaces[name].inside():
                self.cluster.start_model_host(smollm2_folder())
                self.cluster.start_member(name)

    def _start_rendezvous(self) -> Process:
        listen, data = f"{self._server.address}:{RENDEZVOUS_PORT}", self.cluster.folder / "certificate"
        command = [sys.executable, "-m", "kafila_rendezvous", "--listen", listen, "--alternate", "10.9.0.2"]
        with self._server.inside():
            return self.cluster.spawn("rendezvous", [*command, "--data", str(data)], {})

    def restart_rendezvous(self) -> None:
        self._rendezvous.stop()
        self._rendezvous = self._start_rendezvous()

    @property
    def members(self) -> list[ClusterMember]:
        return self.cluster.members

    def request(self, member: ClusterMember, path: str, body: Any = None) -> Any:
        with self.spaces[member.name].inside():
            return member.request(path, body)[1]

    def start(self, member: ClusterMember, *arguments: str) -> "subprocess.Popen[str]":
        with self.spaces[member.name].inside():
            return start(member, *arguments)

    def session(self, member: ClusterMember) -> dict[str, Any]:
        sessions = self.request(member, "/api/session/list").get("sessions", [])
        return next((session for session in sessions if session["state"] != "closed"), {})

    def behave(self, behaviours: Sequence[Behaviour]) -> None:
        """Every member's router; the members notice within a while."""
        if list(behaviours) != self.behaviours:
            for router, behaviour in zip(self.routers, behaviours, strict=True):
                router.behave(behaviour)
            self.behaviours = list(behaviours)
            time.sleep(NOTICED_S)

    def form(self) -> dict[str, Any]:
        """A session of all three, formed as people do."""
        first, *others = self.members
        wanted = ("--members", "3", "--require", "all", "--context", "1024", "--concurrency", "2")
        creating = self.start(first, "session", "create", SMOLLM2, *wanted)
        assert creating.stdout is not None
        shown = ""
        for line in creating.stdout:
            shown += line
            if match := re.search(r"\b\d+(?:-[a-z]+){3}(?:@\S+)?", line):
                break
        else:
            raise AssertionError(f"no code was printed:\n{shown}")
        joining = [self.start(member, "session", "join", match.group(), "--yes") for member in others]
        for command in (creating, *joining):
            out, _ = command.communicate(timeout=110)
            assert command.returncode == 0, out
        for member in self.members:
            until(lambda member=member: self.session(member).get("state") == "ready", 60)  # type: ignore[misc]
            until(lambda member=member: len(self.request(member, "/api/tags")["models"]) > 0, 30)  # type: ignore[misc]
        return self.session(first)

    def leave(self) -> None:
        for member in self.members:
            self.start(member, "session", "leave").communicate(timeout=30)
            until(lambda member=member: not self.session(member), 20)  # type: ignore[misc]

    def chat(self, member: ClusterMember, messages: Any, tokens: int) -> str:
        model = self.session(member)["vehicle"]["name"]
        options = {"temperature": 0, "num_predict": tokens}
        body = {"model": model, "messages": messages, "stream": False, "options": options}
        answer = self.request(member, "/api/chat", body)
        return str(answer["message"]["content"]) if "message" in answer else str(answer)

    def paths(self) -> list[str]:
        return sorted(hop["path"] for hop in self.session(self.members[0])["hops"])


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    with NatLab() as lab:
        yield Homes(lab, tmp_path_factory.mktemp("homes"))


@contextmanager
def meanwhile(act: Callable[[], None], after_s: float = 1.0) -> Iterator[None]:
    """Does something in a while, and has done it when the block ends; else the test has shown nothing."""
    thread = threading.Timer(after_s, act)
    thread.start()
    yield
    was_in_time = not thread.is_alive()
    thread.join()
    assert was_in_time, "the answer was there before anything happened"


def check(homes: Homes, session: dict[str, Any], paths: list[str]) -> None:
    """The session's paths are as predicted, and it answers at every member."""
    assert homes.paths() == paths
    assert sorted(hop["predicted_path"] for hop in session["hops"]) == paths
    assert all(0 < hop["formed_s"] < 5 for hop in session["hops"])
    for member in homes.members:
        assert "Paris" in homes.chat(member, QUESTION, 16)


@pytest.mark.parametrize(
    ("behaviour", "paths"),
    [
        pytest.param(ORDINARY, ["direct"] * 3, id="all-direct"),
        pytest.param(RESTRICTIVE, ["relay"] * 3, id="all-relayed"),
    ],
)
@pytest.mark.timeout(180)
def test_session_when_all_routers_are_alike_then_it_answers_also_while_the_rendezvous_is_started_again(
    behaviour: Behaviour, paths: list[str], homes: Homes
) -> None:
    homes.behave([behaviour] * 3)
    check(homes, homes.form(), paths)
    first = homes.members[0]
    whole = homes.chat(first, COUNT, TOKENS)
    with meanwhile(homes.restart_rendezvous):
        assert homes.chat(first, COUNT, TOKENS) == whole
    until(lambda: homes.session(first).get("joining") == "open", 20)
    homes.leave()


@pytest.mark.timeout(240)
def test_mixed_session_when_networks_change_in_the_middle_of_answers_then_not_a_token_is_lost(homes: Homes) -> None:
    homes.behave((ORDINARY, RESTRICTIVE, PERMISSIVE))
    check(homes, homes.form(), ["direct", "direct", "relay"])
    first = homes.members[0]
    whole = homes.chat(first, COUNT, TOKENS)

    with meanwhile(lambda: homes.routers[1].behave(ORDINARY)):
        assert homes.chat(first, COUNT, TOKENS) == whole
    until(lambda: homes.paths() == ["direct"] * 3, 40)

    for number, router in enumerate(homes.routers[:2]):
        with meanwhile(lambda router=router, number=number: router.move(f"10.9.3.{number + 1}")):  # type: ignore[misc]
            assert homes.chat(first, COUNT, TOKENS) == whole
        until(lambda: homes.paths() == ["direct"] * 3, 40)
    homes.leave()


@pytest.mark.timeout(240)
def test_session_when_a_router_drops_udp_for_a_while_then_nobody_is_lost_and_answers_go_on(homes: Homes) -> None:
    homes.behave([ORDINARY] * 3)
    check(homes, homes.form(), ["direct"] * 3)
    first = homes.members[0]
    whole = homes.chat(first, COUNT, TOKENS)
    with ExitStack() as outage:
        with meanwhile(lambda: outage.enter_context(homes.routers[1].without_udp())):
            assert homes.chat(first, COUNT, TOKENS) == whole
        time.sleep(20)
        assert homes.chat(first, COUNT, TOKENS) == whole
        assert "relay" in homes.paths()
    assert sorted(one["name"] for one in homes.session(first)["members"]) == sorted(NAMES)
    until(lambda: homes.paths() == ["direct"] * 3, 60)
    assert homes.chat(first, COUNT, TOKENS) == whole
    homes.leave()
