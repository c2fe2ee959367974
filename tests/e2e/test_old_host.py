"""A host that embedded the rendezvous is killed and the others move; its server is started again, and finds them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NAMES, create, start, until
from tests.e2e.test_back import present
from tests.e2e.test_moving import TINY, address_in, power_off
from tests.support.cluster import Cluster, ClusterMember


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three members, none of whom is configured with a rendezvous."""
    below = tmp_path_factory.mktemp("old host")
    folder = below / "tiny"
    command = [sys.executable, "-m", "tests.support.tiny", str(folder), "--set", "num_hidden_layers=12"]
    subprocess.run(command, check=True, timeout=60)
    with Cluster(below) as made:
        made.start_model_host(folder)
        for name in NAMES:
            made.start_member(name)
        yield made


def sees_all(member: ClusterMember) -> bool:
    """Whether all three are there in the session that is ready, as this member knows it, once its server answers."""
    return len(present(member)) == len(NAMES)


@pytest.mark.timeout(300)
def test_old_host_when_its_server_is_started_again_then_it_is_a_member_by_itself_where_the_others_are(
    cluster: Cluster,
) -> None:
    ada, bob, cyd = cluster.members
    code, creating = create(ada, TINY, "--members", "3", "--context", "256")
    joining = [start(member, "session", "join", code, "--yes") for member in (bob, cyd)]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    for member in cluster.members:
        until(lambda member=member: sees_all(member), 60)  # type: ignore[misc]
    power_off(ada)
    until(lambda: bob.session().get("host") == cyd.session().get("host") != "ada", 40)
    heir = bob if bob.session()["host"] == "bob" else cyd
    until(lambda: address_in(heir.session().get("code", "")) not in ("", address_in(code)), 40)

    cluster.start_again(ada)
    for member in cluster.members:
        until(lambda member=member: sees_all(member), 90)  # type: ignore[misc]
    assert ada.session()["host"] == heir.name
    model = ada.session()["vehicle"]["name"]
    body = {"model": model, "prompt": "once", "raw": True, "stream": False, "options": {"num_predict": 4}}
    until(lambda: ada.request("/api/generate", body)[0] == 200, 30, 0.5)
