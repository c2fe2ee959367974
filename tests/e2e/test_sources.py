"""Three machines fetch one checkpoint once between them, and a folder that only the host has; with real processes."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NAMES, create, form, start, until
from tests.support.cluster import Cluster, ClusterMember, make_cluster

BLOCKS = 12
TINY = "kafila/tiny"
ASKED = {"prompt": "once", "raw": True, "stream": False, "options": {"temperature": 0, "num_predict": 12}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of some 15 MB, so that what is fetched twice shows."""
    folder = tmp_path_factory.mktemp("sources") / "tiny"
    command = [sys.executable, "-m", "tests.support.tiny", str(folder), "--set", f"num_hidden_layers={BLOCKS}",
               "--set", "hidden_size=256", "--set", "intermediate_size=256"]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.fixture
def cluster(folder: Path, tmp_path: Path) -> Iterator[Cluster]:
    with make_cluster(*NAMES, folders=(folder,), below=tmp_path) as made:
        yield made


def sent(cluster: Cluster) -> int:
    """Bytes of weight files that the model host has sent."""
    with urllib.request.urlopen(f"{cluster.hub}/_counts", timeout=5) as answer:
        counts = json.loads(answer.read())
    return sum(count for file, count in counts.items() if file.endswith(".safetensors"))


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of all headers, and of all tensors."""
    headers = total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            headers += 8 + int.from_bytes(file.read(8), "little")
        total += path.stat().st_size
    return headers, total - headers


def answer_of(member: ClusterMember) -> str:
    name = member.session()["vehicle"]["name"]
    status, answer = member.request("/api/generate", {"model": name, **ASKED})
    assert status == 200, answer
    return str(answer["response"])


def form_with(cluster: Cluster, model: str, *options: str) -> dict[str, Any]:
    """A session of all members by the first one's word on who serves."""
    first, *others = cluster.members
    code, creating = create(first, model, "--members", str(len(cluster.members)), "--context", "256", *options)
    joining = [start(member, "session", "join", code, "--yes") for member in others]
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=60)
        assert command.returncode == 0, out
    for member in cluster.members:
        until(lambda member=member: member.session().get("state") == "ready", 30)  # type: ignore[misc]
        until(lambda member=member: len(member.request("/api/tags")[1]["models"]) > 0, 30)  # type: ignore[misc]
    return first.session()


def held_by(session: dict[str, Any]) -> dict[str, int]:
    """Blocks of each stage."""
    return {stage["member"]: stage["end"] - stage.get("start", 0) for stage in session["stages"]}


def damage(member: ClusterMember) -> int:
    """Changes one byte of what a member holds; how many bytes can't be told from it, since they came in one span."""
    for journal in (member.home / "kafila" / "models").glob("**/journal.jsonl"):
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        held = {line["file"]: line["held"] for line in lines if "held" in line}  # the latest of each
        file, (first, end) = min(held.items(), key=lambda one: one[1][1] - one[1][0])
        with next(path for path in journal.parent.glob(f"{file}*")).open("r+b") as weights:
            weights.seek((first + end) // 2)
            byte = weights.read(1)
            weights.seek((first + end) // 2)
            weights.write(bytes([byte[0] ^ 1]))
        return int(end - first)
    raise AssertionError(f"{member.name} holds nothing")


def leave(cluster: Cluster) -> None:
    """All at once: whoever is left alone for a moment would fetch what the others had."""
    for command in [start(member, "session", "leave") for member in cluster.members]:
        out, _ = command.communicate(timeout=30)
        assert command.returncode == 0, out


def test_three_members_when_they_fetch_divide_anew_and_lose_one_then_the_host_is_asked_once(
    cluster: Cluster, folder: Path
) -> None:
    ada, bob, cyd = cluster.members
    headers, tensors = sizes(folder)
    session = form(cluster, TINY, "--replan", "never")  # on a busy machine another one may soon look better
    assert set(held_by(session)) == set(NAMES)
    assert sent(cluster) == tensors + 3 * headers
    expected = answer_of(bob)
    leave(cluster)

    # Another division: what cyd held goes to the others, of which one in sixteen units is compared at the model host.
    damaged_bytes = damage(cyd)
    before = sent(cluster)
    session = form_with(cluster, TINY, "--require", "ada", "--require", "bob", "--exclude", "cyd")
    assert set(held_by(session)) == {"ada", "bob"}
    assert answer_of(cyd) == expected
    moved_bytes = tensors - 2 * tensors // BLOCKS  # at most
    assert sent(cluster) - before < damaged_bytes + moved_bytes // 2

    # Without bob: what it held last comes from cyd as far as cyd had it, and only the rest from the model host.
    before = sent(cluster)
    ada.ollama("session", "kick", "bob", check=True)
    until(lambda: held_by(ada.session()) == {"ada": BLOCKS} and ada.session()["state"] == "ready", 30)
    assert answer_of(ada) == expected
    assert sent(cluster) - before < tensors * (held_by(session)["bob"] + 1) // BLOCKS


def test_folder_when_only_the_host_has_it_then_the_others_get_it_from_there(
    cluster: Cluster, folder: Path, tmp_path: Path
) -> None:
    ada, bob, cyd = cluster.members
    lying = Path(folder).rename(tmp_path / "on adas disk")
    try:
        session = form(cluster, str(lying))
        assert set(held_by(session)) == set(NAMES)
        for member in (bob, cyd):
            shown = member.session()
            assert shown["model"] == "on-adas-disk"
            assert str(tmp_path) not in json.dumps(shown)
            laid = list((member.home / "kafila" / "models" / "folder" / "on-adas-disk").glob("*/*.safetensors*"))
            assert laid
        assert answer_of(ada) == answer_of(bob) == answer_of(cyd) != ""
        assert sent(cluster) == 0
    finally:
        lying.rename(folder)
