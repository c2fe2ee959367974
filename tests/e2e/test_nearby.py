"""Two machines on one network, no rendezvous anywhere: a number and three words are enough."""

import re
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import create, start, until
from tests.support.cluster import Cluster, ClusterMember
from tests.support.natlab import NatLab, missing
from tests.support.tiny import tiny_folder

pytestmark = [
    pytest.mark.long,
    pytest.mark.mlx,
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterMember]]:
    below = tmp_path_factory.mktemp("nearby")
    model = tiny_folder(below / "tiny")
    with NatLab() as lab:
        cluster = Cluster(below)
        lab.callback(cluster.stop)
        for name, address in (("ada", "0.1"), ("bob", "0.2")):
            space = lab.host(name, address)
            with space.inside():
                cluster.start_model_host(model)
            cluster.start_member(name, space.inside, KAFILA_RENDEZVOUS="", KAFILA_MDNS="1", KAFILA_PORT_MAPPING="0")
        yield cluster.members


def test_session_when_no_rendezvous_is_set_then_the_short_code_is_enough_on_this_network(
    members: list[ClusterMember],
) -> None:
    ada, bob = members
    code, creating = create(ada, "kafila/tiny", "--members", "2", "--context", "64")
    assert re.fullmatch(r"\d+(?:-[a-z]+){3}", code)
    joining = start(bob, "session", "join", code, "--yes")
    for command in (creating, joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    until(lambda: ada.session()["state"] == bob.session()["state"] == "ready", 60)
    whole = ada.session()["whole_code"]
    assert whole.startswith(f"{code}@10.9.0.1:")
    assert bob.ollama("session", "leave", "--yes").returncode == 0
    until(lambda: [one["name"] for one in ada.session()["members"]] == ["ada"], 30)
    again = bob.ollama("session", "join", whole, "--yes")
    assert again.returncode == 0, again.stderr


def test_code_when_nobody_here_has_its_number_then_one_sentence_asks_for_the_whole_one(
    members: list[ClusterMember],
) -> None:
    number = int(members[0].session()["code"].split("-")[0])
    said = members[1].ollama("session", "join", f"{number % 98 + 1}-ocean-velvet-lamp", "--yes")
    assert said.returncode == 1
    assert "ask for the whole code" in said.stderr
