"""The sidecar as a process: it serves on its socket alone, and ends with its parent, or when told."""

import asyncio
import os
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc as rpc
from tests.support.alone import ALONE
from tests.support.native_thread import beside_a_native_thread

pytestmark = pytest.mark.mlx

ROOT = Path(__file__).parents[2]
PLAIN = (sys.executable, "-m", "kafila_sidecar")
END_DEADLINE_S = 5.0  # `ollama serve` kills what has not ended by then


class Sidecar:
    """A running sidecar, and a stub that is connected with it."""

    def __init__(self, process: asyncio.subprocess.Process, socket: Path, stub: rpc.SidecarStub, log: Path) -> None:
        self.process, self.socket, self.stub, self._log = process, socket, stub, log

    async def ends_well(self) -> None:
        async with asyncio.timeout(END_DEADLINE_S):
            status = await self.process.wait()
        assert status == 0, self._log.read_text()[-4000:]

    async def until(self, session: str, holds: Callable[[pb.Session], bool]) -> pb.Session:
        """The first snapshot for which it holds."""
        snapshot: pb.Session
        async for snapshot in self.stub.WatchSession(pb.SessionRequest(session=session), timeout=60):
            if holds(snapshot):
                return snapshot
        raise AssertionError("the session was closed")


class Machines:
    """Starts sidecars, and ends those that are left."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder, self._stack = folder, stack

    async def start(self, name: str, *, program: Sequence[str] = PLAIN, **environment: str) -> Sidecar:
        socket = self._folder / name / "s.sock"
        said = self._folder / f"{name}.log"
        with said.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(*program, "--socket", str(socket), "--data", str(self._folder / name)),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **ALONE, "KAFILA_NAME": name, **environment},
            )
        self._stack.push_async_callback(_end, process)
        channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{socket}"))
        stub = rpc.SidecarStub(channel)  # type: ignore[no-untyped-call]
        reply = await stub.Hello(pb.HelloRequest(), wait_for_ready=True, timeout=60)
        assert reply.pid == process.pid
        return Sidecar(process, socket, stub, said)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    async with AsyncExitStack() as stack:
        yield Machines(tmp_path, stack)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.tiny import tiny_folder

    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


async def test_sidecar_when_its_parent_is_gone_then_it_ends_and_takes_its_socket_along(machines: Machines) -> None:
    ada = await machines.start("ada")
    assert stat.S_IMODE(ada.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(ada.socket.parent.stat().st_mode) & 0o077 == 0
    assert ada.process.stdin is not None
    ada.process.stdin.close()
    await ada.ends_well()
    assert not ada.socket.exists()


@pytest.mark.parametrize(("goes", "ending"), [("bob", signal.SIGTERM), ("ada", signal.SIGINT)])
async def test_sidecar_when_told_to_end_then_the_other_member_hears_it_and_those_who_watch(
    machines: Machines, tiny: Path, goes: str, ending: signal.Signals
) -> None:
    ada, bob = await asyncio.gather(machines.start("ada"), machines.start("bob"))
    session = await ada.stub.CreateSession(pb.CreateSessionRequest(model=str(tiny), members=2))
    offer = await bob.stub.OpenSession(pb.OpenSessionRequest(code=session.code))
    await bob.stub.JoinSession(pb.JoinSessionRequest(session=offer.session))
    for member in (ada, bob):
        await member.until(session.id, lambda snapshot: snapshot.state == "ready")
    first, other, left = (bob, ada, "ada") if goes == "bob" else (ada, bob, "bob")
    watching = asyncio.ensure_future(first.until(session.id, lambda snapshot: snapshot.state == "closed"))
    alone = asyncio.ensure_future(other.until(session.id, lambda s: [m.name for m in s.members if m.present] == [left]))
    await asyncio.sleep(0.1)
    first.process.send_signal(ending)
    await first.ends_well()
    assert (await asyncio.wait_for(watching, 5)).state == "closed"
    await asyncio.wait_for(alone, 5)


async def test_sidecar_when_it_measures_then_it_ends_in_time_all_the_same(
    machines: Machines, tiny: Path, tmp_path: Path
) -> None:
    ada = await machines.start("ada")
    folder = shutil.copytree(tiny, tmp_path / "Qwen3-8B")
    session = await ada.stub.CreateSession(pb.CreateSessionRequest(model=str(folder), members=3))
    assert "--draft qwen3:0.6b" in session.notices[-1]  # by its name a model for which a small one is known
    ada.process.send_signal(signal.SIGTERM)
    await ada.ends_well()


async def test_sidecar_when_a_librarys_thread_runs_as_it_ends_then_it_ends_well(
    machines: Machines, tmp_path: Path
) -> None:
    ada = await machines.start("ada", program=beside_a_native_thread("kafila_sidecar", tmp_path))
    ada.process.send_signal(signal.SIGTERM)
    await ada.ends_well()


@pytest.mark.parametrize("where", ["/proc/nowhere/s.sock", "/tmp/" + "x" * 150])
async def test_sidecar_when_it_can_not_serve_there_then_one_sentence(tmp_path: Path, where: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(*PLAIN, "--socket", where, "--data", str(tmp_path)),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert b"Traceback" not in said
    assert b"kafila-sidecar: " in said
