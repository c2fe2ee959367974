"""What the guides have people type does what they say, with two real machines called as in the guide.

Each page is typed from top to bottom. A tiny model stands for the ones that pages name, the session's own code for the
ones that they show, and who is asked agrees.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.e2e.conftest import create, until
from tests.support.cluster import OLLAMA, Cluster, ClusterMember, make_cluster
from tests.support.docs import ROOT, Document
from tests.support.saying import saying_folder
from tests.support.vocabularies import vocabulary

MODEL = "kafila/tiny"
NAMED_MODEL = re.compile(r"Qwen/Qwen3-\w+|qwen3:\d+b|smollm2:\w+")
NAMED_CODE = re.compile(r"\d+(?:-[a-z]+){3}(?:@\S+)?")
ASKING = ("join", "run", "leave", "prune")
GUIDES = ("start", "home", "routers", "memory", "clients", "upkeep")

pytestmark = [pytest.mark.mlx, pytest.mark.skipif(not OLLAMA.exists(), reason="make build has not been run")]


def elsewhere(line: str) -> str:
    """Why a command is not typed here; empty where it is."""
    match shlex.split(line)[1:]:
        case ["serve"]:
            return "the servers run"
        case ["service", *_]:
            return "it is the system's: ollama/internal/service has its tests"
        case [*_, "--members", "3"]:
            return "there are two machines"
        case [*_, "--version" | "--help"]:
            return "it needs no server: tests/project/test_documented_commands.py"
    return ""


class TwoPeople:
    """Two people who do what a page says, the second one where the page says `At laptop`."""

    def __init__(self, cluster: Cluster) -> None:
        self.desk, self.laptop = cluster.members
        self._code = ""
        self._creating: subprocess.Popen[str] | None = None

    def type(self, line: str) -> str:
        """What came of a command, or of the one that waited for it."""
        words = self.meant(line)
        if words[:2] == ["session", "create"]:
            self._code, self._creating = create(self.desk, *words[2:])
            return self.created() if "1" in words else self._code
        member = self.laptop if words[:2] == ["session", "join"] else self.desk
        said = self.succeeds(member, words)
        if words[:2] == ["session", "code"]:
            self._code = said.split()[0]
        return said + (self.created() if member is self.laptop else "")

    def meant(self, line: str) -> list[str]:
        """The arguments, for the model and the session that are here."""
        words = shlex.split(NAMED_CODE.sub(self._code, NAMED_MODEL.sub(MODEL, line)))[1:]
        if "--quantize" in words:  # the tiny model's matrices are too small to pack
            del words[words.index("--quantize") : words.index("--quantize") + 2]
        return words + ["--yes"] * any(word in ASKING for word in words[:3])

    def created(self) -> str:
        assert self._creating is not None
        out, _ = self._creating.communicate(timeout=100)
        assert self._creating.returncode == 0, out
        for member in (self.desk, self.laptop):
            until(lambda member=member: member.session().get("state", "ready") in ("ready", "closed"), 60)  # type: ignore[misc]
        return out

    def succeeds(self, member: ClusterMember, words: list[str]) -> str:
        done = member.ollama(*words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout + done.stderr

    def rest(self) -> None:
        """Leaves what a page left open."""
        for member in (self.laptop, self.desk):
            if member.session().get("state", "closed") != "closed":
                self.succeeds(member, ["session", "leave", "--yes"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The two machines of the guide, and a model whose answers end: what a random one draws need not."""
    folder = vocabulary(tmp_path_factory.mktemp("model") / "tiny", "byte_level")
    saying_folder(folder, Tokenizer.load(folder).backend.encode("Because.", add_special_tokens=False).ids)
    with make_cluster("desk", "laptop", folders=(folder,), below=tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.mark.parametrize("guide", GUIDES)
def test_guide_when_its_commands_are_typed_then_each_does_what_it_says(cluster: Cluster, guide: str) -> None:
    people = TwoPeople(cluster)
    typed = [line for line in Document(f"docs/guide/{guide}.md").commands() if not elsewhere(line)]
    assert typed
    if not any("create" in line for line in typed):
        people.type(f"kafila session create {MODEL} --members 1")
    for line in typed:
        assert people.type(line), line
    people.rest()


def test_home_when_a_server_has_used_it_then_the_page_on_upkeep_tells_of_all_that_lies_in_it(cluster: Cluster) -> None:
    told = set(re.findall(r"`~/\.kafila/([a-z_.]+)`", (ROOT / "docs/guide/upkeep.md").read_text(encoding="utf-8")))
    for member in cluster.members:
        lies = {entry.name for entry in Path(member.environment["KAFILA_HOME"]).iterdir()}
        assert {"token", "owner", "logs"} <= lies
        assert lies <= told | {"models"}, member.name


def test_guides_when_all_are_typed_then_none_is_left_out() -> None:
    pages = {page for page in ("start", "home", "routers", "rendezvous", "memory", "choosing", "clients", "upkeep")
             if any(not elsewhere(line) for line in Document(f"docs/guide/{page}.md").commands())}  # fmt: skip
    assert pages == set(GUIDES)
