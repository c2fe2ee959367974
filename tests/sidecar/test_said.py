"""Calls to the sidecar that say nothing, or what means nothing: refused in words, or harmless, whichever it is."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message_factory import GetMessageClass

from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc as rpc
from kafila_sidecar.config import Config
from kafila_sidecar.errors import BY_CODE
from kafila_sidecar.machine.node import open_node
from kafila_sidecar.service import start_server
from kafila_sidecar.weights.store.journal import append
from kafila_sidecar.weights.store.store import JOURNAL
from tests.support.alone import ALONE

pytestmark = pytest.mark.mlx

CALLS = {method.name: method for method in pb.DESCRIPTOR.services_by_name["Sidecar"].methods}
MEANT = set(BY_CODE) - {"INTERNAL"}
HARMLESS = {"Hello", "ListSessions", "ListModels", "ListWeights", "Doctor", "Metrics"}
"""Those that ask for nothing but to be told."""
ABSENT = {
    *("StartSession", "ShowModel", "LeaveSession", "NewCode", "ChoosePlan", "Replan", "WatchSession", "Generate"),
    "Traces",
}
"""Those that mean the only open session, or one that is not there."""
LARGE = "x" * 50_000
ODD: dict[int, tuple[Any, ...]] = {
    Field.TYPE_DOUBLE: (float("nan"), float("inf"), float("-inf"), -1.0, -5e-324, -1.7e308),
    Field.TYPE_FLOAT: (float("nan"), float("inf"), -1.0),
    Field.TYPE_UINT32: ((1 << 32) - 1,),
    Field.TYPE_UINT64: ((1 << 64) - 1,),
    Field.TYPE_INT32: (-1 << 31, (1 << 31) - 1),
    Field.TYPE_INT64: (-1 << 63, (1 << 63) - 1),
    Field.TYPE_STRING: (" ", "\0", LARGE, "../..", "/" + LARGE, "/\0", "\x1b[2J", "7-a-b-c@[::1", "host:99999999"),
}
"""Values that nobody means, by type."""
MODEL, REVISION = "kafila/held", "0" * 40


class ToldSidecar:
    """A sidecar with weights on its disk and no session, as the server on the same machine reaches it."""

    def __init__(self, stub: rpc.SidecarStub, weights: Path) -> None:
        self._stub = stub
        self._weights = weights

    async def call(self, name: str, request: Any) -> str:
        """The name of the status; weights and sessions are as before, and a refusal is one sentence."""
        status, sentence = await self.told(name, request)
        assert 0 < len(sentence) < 2000
        assert self._weights.exists()
        assert not (await self._stub.ListSessions(pb.ListSessionsRequest())).sessions
        return status

    async def told(self, name: str, request: Any) -> tuple[str, str]:
        """The name of the status, and the sentence of a refusal."""
        call = getattr(self._stub, name)(request, timeout=30)
        try:
            await (call.read() if CALLS[name].server_streaming else call)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name), error.details() or ""
        return "OK", "none"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("said")


@pytest.fixture
async def served(held: Path, tmp_path: Path) -> AsyncIterator[ToldSidecar]:
    weights = held / "models" / MODEL / REVISION / "model.safetensors"
    weights.parent.mkdir(parents=True, exist_ok=True)
    weights.write_bytes(bytes(64))
    append(weights.parent / JOURNAL, {"file": weights.name, "size": 64, "etag": None})
    told = {**ALONE, "HF_HUB_OFFLINE": "1", "KAFILA_NAME": "ada"}
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(open_node(Config.read(told, socket_path=tmp_path / "s", data=held)))
        server = await start_server(node, tmp_path / "s")
        stack.push_async_callback(server.stop, 0)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{tmp_path / 's'}"))
        yield ToldSidecar(rpc.SidecarStub(channel), weights)  # type: ignore[no-untyped-call]


def request_of(name: str, /, **fields: Any) -> Any:
    return GetMessageClass(CALLS[name].input_type)(**fields)


def odd_requests(name: str) -> Iterator[tuple[str, Any]]:
    """One odd value after another in the call's fields, and what it is; of options, in theirs."""
    for field in CALLS[name].input_type.fields:
        if field.message_type is not None:
            options = odd_values(field.message_type.fields)
            yield from ((field.name, {field.name: [one] * 40 if field.is_repeated else one}) for one in options)
        elif field.is_repeated:
            large, small = (LARGE, "x") if field.type == Field.TYPE_STRING else ((1 << 31) - 1, -1)
            yield field.name, {field.name: [large] * 40}
            yield field.name, {field.name: [small] * 50_000}
        else:
            yield from ((field.name, said) for said in odd_values([field]))


def odd_values(fields: Iterable[Field]) -> Iterator[dict[str, Any]]:
    for field in fields:
        if not field.is_repeated:
            yield from ({field.name: one} for one in ODD.get(field.type, ()))


@pytest.mark.parametrize("name", CALLS)
async def test_call_when_nothing_is_said_then_refused_as_such_or_harmless(served: ToldSidecar, name: str) -> None:
    status = await served.call(name, request_of(name))
    expected = {"OK"} if name in HARMLESS else {"NOT_FOUND"} if name in ABSENT else {"INVALID_ARGUMENT"}
    assert status in expected


@pytest.mark.parametrize("name", [name for name in CALLS if name != "Doctor"])
async def test_call_when_values_mean_nothing_then_no_bug_and_nothing_is_lost(served: ToldSidecar, name: str) -> None:
    for field, said in odd_requests(name):
        status = await served.call(name, request_of(name, **said))
        assert status in MEANT | {"OK"}, (field, str(said)[:80])


TOO_MUCH: list[tuple[str, dict[str, Any], str]] = [
    ("PruneWeights", {"unused_for_s": float("nan")}, "nan s"),
    ("PruneWeights", {"unused_for_s": float("inf")}, "inf s"),
    ("PruneWeights", {"unused_for_s": -1.0}, "-1.0 s"),
    ("RemoveWeights", {"revision": "0"}, "no model is named"),
    ("Lock", {"session": "7"}, "set locked"),
    ("Kick", {"session": "7"}, "no member is named"),
    ("Plan", {"model": MODEL, "concurrency": 257}, "257"),
    ("Plan", {"model": MODEL, "context_tokens": 3}, "3 tokens"),
    ("Plan", {"model": MODEL, "quantize_bits": 3}, "3 bits"),
    ("CreateSession", {"model": MODEL, "require": ["x"] * 65}, "64 members at most"),
    ("CreateSession", {"model": MODEL, "exclude": ["x" * 41]}, "40 characters"),
]


@pytest.mark.parametrize(("name", "said", "sentence"), TOO_MUCH, ids=str)
async def test_call_when_it_asks_for_what_is_never_done_then_invalid_by_name(
    served: ToldSidecar, name: str, said: dict[str, Any], sentence: str
) -> None:
    status, told = await served.told(name, request_of(name, **said))
    assert status == "INVALID_ARGUMENT"
    assert sentence in told
