"""A repository that names code of its own wherever one can: the code is never fetched, read or run."""

import asyncio
import json
import runpy
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config
from kafila_sidecar.errors import Refused
from kafila_sidecar.machine.node import LocalNode, open_node
from kafila_sidecar.runtime.mlx_thread import prefer_openblas
from tests.support.alone import ALONE
from tests.support.model_host import ModelHost

pytestmark = pytest.mark.mlx
prefer_openblas()

PATIENCE_S = 60.0
REPO = "kafila/evil"
CODE = ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py", "processing_evil.py", "__init__.py")
NAMED: dict[str, dict[str, Any]] = {
    "config.json": {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"},
    "tokenizer_config.json": {"AutoTokenizer": ["tokenization_evil.Evil", "tokenization_evil.Evil"]},
    "processor_config.json": {"AutoProcessor": "processing_evil.Evil"},
    "preprocessor_config.json": {"AutoImageProcessor": "processing_evil.Evil"},
    "generation_config.json": {"AutoConfig": "kafila/other--configuration_evil.Evil"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A checkpoint with code that leaves a mark when it runs; after each test there is none, nor a copy of the code."""
    from tests.support.tiny import tiny_folder

    mark = tmp_path / "mark"
    made = tiny_folder(tmp_path / "evil", dtype="f32", config={"eos_token_id": 258})
    for name in CODE:
        (made / name).write_text(f"open({str(mark)!r}, 'w').close()\nclass Evil: pass\n")
    for name, auto_map in NAMED.items():
        told = json.loads((made / name).read_text()) if (made / name).is_file() else {}
        (made / name).write_text(json.dumps(told | {"auto_map": auto_map}))
    runpy.run_path(str(made / CODE[0]))
    mark.rename(tmp_path / "it leaves a mark")
    yield made
    assert not mark.exists()
    assert not list((tmp_path / "data").rglob("*.py"))


def weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@asynccontextmanager
async def node_of(data: Path, **environment: str) -> AsyncIterator[LocalNode]:
    told = {**ALONE, "HF_ENDPOINT": "http://127.0.0.1:9", **environment}
    async with open_node(Config.read(told, socket_path=data / "s", data=data)) as node:
        yield node


async def answer(node: LocalNode, model: str) -> pb.GenerateReply:
    """The last reply of a session of this machine alone."""
    made = await node.create(pb.CreateSessionRequest(model=model, members=1, context_tokens=64))
    async with asyncio.timeout(PATIENCE_S), aclosing(node.watch(pb.SessionRequest(session=made.id))) as snapshots:
        async for shown in snapshots:
            assert shown.state != "closed", shown.failure
            if shown.state == "ready":
                break
    options = pb.Options(num_predict=4, temperature=0)  # a drawn token may be one that ends the answer
    asked = pb.GenerateRequest(session=made.id, prompt="once", options=options, truncate=True)
    return [reply async for reply in node.generate(asked)][-1]


async def test_code_when_it_lies_in_a_folder_of_this_machine_then_it_answers_and_none_ran(
    folder: Path, tmp_path: Path
) -> None:
    async with node_of(tmp_path / "data") as node:
        assert (await answer(node, str(folder))).output_tokens == 4


async def test_code_when_it_lies_at_the_model_host_then_it_answers_and_none_was_fetched(
    folder: Path, tmp_path: Path
) -> None:
    with ModelHost({REPO: folder}) as host:
        async with node_of(tmp_path / "data", HF_ENDPOINT=host.endpoint) as node:
            assert (await answer(node, REPO)).output_tokens == 4
        asked = {request.file for request in host.seen}
    assert asked
    assert not {file for file in asked if file.endswith(".py")}


@pytest.mark.parametrize("kind", ["Evil", "TikTokenTokenizer", None])
async def test_tokenizer_when_it_is_code_alone_then_refused_at_create_and_no_weight_came(
    folder: Path, tmp_path: Path, kind: str | None
) -> None:
    told = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"tokenizer_class": kind}))
    (folder / "tokenizer.json").rename(folder / "tiktoken.model")
    with ModelHost({REPO: folder}) as host:
        async with node_of(tmp_path / "data", HF_ENDPOINT=host.endpoint) as node:
            with pytest.raises(Refused, match=r"code of its own \(auto_map\)"):
                await node.create(pb.CreateSessionRequest(model=REPO))
            assert not (await node.list_sessions()).sessions
        assert not {request.file for request in host.seen if request.file.endswith(".py")}
        assert host.sent_bytes(".safetensors") < weight_bytes(folder) / 2
