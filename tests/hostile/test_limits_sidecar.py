"""A sidecar that has too little of something: it says in one sentence what is lacking, and goes on with what it can."""

import asyncio
import os
import resource
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc as rpc
from tests.support.alone import ALONE

pytestmark = pytest.mark.mlx

ROOT = Path(__file__).parents[2]
STRANGER = 54321  # a user that has no processes of its own
# Another user, who may read what root may: the interpreter can lie in root's home.
AS_STRANGER = (
    *("setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
)
needs_root = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root becomes other users and mounts file systems",
)
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prlimit is Linux'")


class LackingSidecar:
    """A sidecar's process, what it logs, and a stub that is connected with it as soon as it serves."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, stub: rpc.SidecarStub) -> None:
        self.process, self.log, self.stub = process, log, stub

    async def hello(self) -> pb.HelloReply:
        reply: pb.HelloReply = await self.stub.Hello(pb.HelloRequest(), wait_for_ready=True, timeout=60)
        return reply

    async def last_words(self) -> str:
        """All that it said, after it has ended by itself and not by a signal."""
        async with asyncio.timeout(30):
            assert await self.process.wait() == 1
        return self.log.read_text()

    async def logged(self, words: str) -> None:
        async with asyncio.timeout(30):
            while words not in self.log.read_text():  # noqa: ASYNC110 - written by another process
                await asyncio.sleep(0.1)

    async def is_ready_with(self, model: Path) -> None:
        """A session of this machine alone comes to serve."""
        request = pb.CreateSessionRequest(model=str(model), members=1)
        session = await self.stub.CreateSession(request, wait_for_ready=True, timeout=60)
        async for snapshot in self.stub.WatchSession(pb.SessionRequest(session=session.id), timeout=60):
            if snapshot.state == "ready":
                return

    async def refusal_of_a_session(self, model: Path) -> str:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.is_ready_with(model)
        assert "bug" not in (refused.value.details() or "")
        return refused.value.details() or ""


class BareMachine:
    """Starts sidecars before which there is something: a limit, another user, a mount."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.socket = folder / "run/s.sock"
        self.home = folder / "home"

    async def start(self, *before: str, environment: Mapping[str, str] | None = None) -> LackingSidecar:
        log = self.folder / "log"
        with log.open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *(*before, sys.executable, "-m", "kafila_sidecar"),
                *("--socket", str(self.socket), "--data", str(self.home)),
                cwd=self.folder,
                stdin=asyncio.subprocess.PIPE,
                stderr=said,
                env={**os.environ, **ALONE, **(environment or {})},
            )
        self._stack.push_async_callback(_end, process)
        address = f"unix:{quote(str(self.socket))}"
        channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(address))
        return LackingSidecar(process, log, rpc.SidecarStub(channel))  # type: ignore[no-untyped-call]

    def without(self, package: str, raising: str) -> dict[str, str]:
        """An environment in which importing a package fails in this way."""
        folder = self.folder / "broken"
        folder.mkdir(exist_ok=True)
        (folder / f"{package}.py").write_text(f"raise {raising}\n")
        return {"PYTHONPATH": str(folder)}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[BareMachine]:
    async with AsyncExitStack() as stack:
        yield BareMachine(tmp_path, stack)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.tiny import tiny_folder

    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


# ---- Too little even to serve: one sentence, and an end that is no crash


@linux
async def test_sidecar_when_it_may_open_too_few_files_then_one_sentence(machine: BareMachine) -> None:
    said = await (await machine.start("prlimit", "--nofile=20")).last_words()
    assert said.startswith("kafila-sidecar: this process may open 20 files at once and needs 64: raise the limit")
    assert said.count("\n") == 1


@needs_root
async def test_sidecar_when_it_may_start_no_threads_then_one_sentence(machine: BareMachine) -> None:
    machine.socket = machine.folder / "other/s.sock"
    said = await (await machine.start(*AS_STRANGER, "prlimit", "--nproc=1")).last_words()
    assert said.startswith("kafila-sidecar: this process can start 0 more threads and needs ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("package", ["psutil", "requests", "spake2"])
async def test_sidecar_when_installed_without_what_a_member_needs_then_it_names_that(
    machine: BareMachine, package: str
) -> None:
    environment = machine.without(package, f"ModuleNotFoundError(\"No module named '{package}'\", name='{package}')")
    said = await (await machine.start(environment=environment)).last_words()
    assert said == (
        f"kafila-sidecar: the Python package {package} is missing: install it with all that a member needs:"
        " pip install 'kafila[node]'\n"
    )


# ---- Enough to serve, not enough for a model: Hello answers and says why


@needs_root
async def test_sidecar_when_threads_suffice_for_calls_only_then_hello_says_so_and_sessions_are_refused(
    machine: BareMachine, tiny: Path
) -> None:
    os.chown(machine.folder, STRANGER, STRANGER)
    sidecar = await machine.start(*AS_STRANGER, "prlimit", "--nproc=12")
    reply = await sidecar.hello()
    assert reply.device.startswith("none: MLX can't be used on this machine: this process can start ")
    assert "ulimit -u" in await sidecar.refusal_of_a_session(tiny)
    assert (await sidecar.hello()).usable_memory_bytes == 0


@linux
async def test_sidecar_when_memory_hardly_suffices_then_hello_answers_and_the_limit_counts(
    machine: BareMachine,
) -> None:
    """Whether MLX fits in beside the rest depends on the machine; the limit counts in either case."""
    limit_bytes = 900_000_000
    sidecar = await machine.start("prlimit", f"--as={limit_bytes}")
    reply = await sidecar.hello()
    assert reply.usable_memory_bytes < limit_bytes
    if reply.device.startswith("none: "):
        assert reply.device.startswith("none: MLX can't be used on this machine: ")
        assert "ulimit -v" in reply.device


async def test_sidecar_when_mlx_is_broken_then_hello_says_so(machine: BareMachine) -> None:
    environment = machine.without("mlx", "ImportError('libmlx.so: undefined symbol: x')")
    reply = await (await machine.start(environment=environment)).hello()
    assert reply.device == (
        "none: MLX can't be used on this machine: a library can't be loaded (libmlx.so: undefined symbol: x): install"
        " it with all that a member needs: pip install 'kafila[node]'"
    )


# ---- Nowhere to write


@needs_root
async def test_sidecar_when_its_home_is_read_only_then_it_answers_and_opens_no_session(
    machine: BareMachine, tiny: Path
) -> None:
    machine.home.mkdir()
    sidecar = await machine.start(
        *("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o ro none "{machine.home}" && exec "$@"', "sh")
    )
    assert (await sidecar.hello()).usable_memory_bytes > 0
    refusal = await sidecar.refusal_of_a_session(tiny)
    assert refusal.startswith(f"{machine.home} can't be used (")
    assert "KAFILA_HOME" in refusal
    assert not (await sidecar.stub.ListSessions(pb.ListSessionsRequest())).sessions


@needs_root
async def test_sidecar_when_its_disk_is_full_then_it_answers_and_says_where(machine: BareMachine, tiny: Path) -> None:
    machine.home.mkdir()
    fill = f'mount -t tmpfs -o size=64k none "{machine.home}" && cat /dev/zero >"{machine.home}/all" 2>/dev/null'
    sidecar = await machine.start("unshare", "-m", "sh", "-c", f'{fill}; exec "$@"', "sh")
    assert (await sidecar.hello()).usable_memory_bytes > 0
    refusal = await sidecar.refusal_of_a_session(tiny)
    assert str(machine.home) in refusal
    assert "No space left" in refusal or "disk is full" in refusal
    assert (await sidecar.hello()).usable_memory_bytes > 0


@needs_root
async def test_sidecar_when_nothing_can_be_written_to_tmp_then_a_session_serves(
    machine: BareMachine, tiny: Path
) -> None:
    sidecar = await machine.start(environment={"TMPDIR": "/proc"})
    await sidecar.is_ready_with(tiny)


# ---- Few descriptors


@linux
async def test_sidecar_when_it_may_open_1024_files_then_a_session_serves(machine: BareMachine, tiny: Path) -> None:
    """mlx-lm asks for 2,048 when it is imported, whatever is allowed."""
    sidecar = await machine.start("prlimit", "--nofile=256:1024")
    await sidecar.is_ready_with(tiny)
    assert resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE) == (1024, 1024)


@linux
async def test_sidecar_when_strangers_use_up_its_files_then_it_outlives_them(machine: BareMachine) -> None:
    sidecar = await machine.start("prlimit", "--nofile=64")
    await sidecar.hello()
    with ExitStack() as crowd:
        for _ in range(80):
            one = crowd.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            one.connect_ex(str(machine.socket))
        await sidecar.logged("network_not_seen")
    assert (await sidecar.hello()).pid == sidecar.process.pid


# ---- Names


async def test_sidecar_when_its_paths_hold_odd_characters_then_it_serves_there(machine: BareMachine) -> None:
    machine.socket = machine.folder / "50%41 #s?ü/%25.sock"
    assert (await (await machine.start()).hello()).version
    assert machine.socket.is_socket()
