"""`kafila-rendezvous` as a process."""

import asyncio
import importlib.metadata
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafila_rendezvous.config import PROTOCOL
from tests.support.native_thread import beside_a_native_thread

PLAIN = (sys.executable, "-m", "kafila_rendezvous")


async def start(*arguments: str, program: Sequence[str] = PLAIN) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_rendezvous_when_started_plain_then_prints_what_to_set_and_stops_on_sigterm(tmp_path: Path) -> None:
    process = await start("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode().strip() for _ in range(2)]
    name, _, value = lines[1].partition("=")
    assert name == "KAFILA_RENDEZVOUS"
    place, _, fingerprint = value.partition("#")
    assert place.startswith("127.0.0.1:")
    assert len(fingerprint) == 20
    process.send_signal(signal.SIGTERM)
    out, log = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0
    assert b"127.0.0.1" not in out + log


async def test_rendezvous_when_a_librarys_thread_runs_as_it_ends_then_it_ends_well(tmp_path: Path) -> None:
    program = beside_a_native_thread("kafila_rendezvous", tmp_path)
    process = await start("--listen", "127.0.0.1:0", "--data", str(tmp_path), program=program)
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), 20)
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0, log.decode()


async def test_rendezvous_when_nobody_reads_what_it_says_then_it_ends_well(tmp_path: Path) -> None:
    plain = f"exec {shlex.join(PLAIN)} --listen 127.0.0.1:0 --data {shlex.quote(str(tmp_path))} >&- 2>&-"
    process = await asyncio.create_subprocess_exec("sh", "-c", plain)
    for _ in range(200):
        if (tmp_path / "mailboxes").exists():
            break
        await asyncio.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_rendezvous_when_asked_for_its_version_then_says_it_and_the_protocols_and_serves_nothing() -> None:
    process = await start("--version")
    out, err = await asyncio.wait_for(process.communicate(), 20)
    said = f"kafila-rendezvous {importlib.metadata.version('kafila')}, protocol {PROTOCOL}"
    assert (process.returncode, out.decode().strip(), err) == (0, said, b"")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--listen", "nonsense"), b"HOST:PORT"),
        (("--cert", "a"), b"--cert and --key go together"),
        (("--cert", "/nowhere", "--key", "/nowhere"), b"can't use certificate"),
        (("--listen", "203.0.113.1:1", "--insecure"), b"can't listen"),
    ],
)
async def test_rendezvous_when_it_cannot_serve_then_one_sentence_and_status_2(
    arguments: tuple[str, ...], sentence: bytes
) -> None:
    process = await start(*arguments)
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert sentence in err
    assert b"Traceback" not in err


ALIVE = Path(__file__).parents[2] / "packaging" / "containers" / "alive.py"


async def checked(port: int) -> tuple[int | None, str]:
    """What the container's health check says."""
    asking = await asyncio.create_subprocess_exec(
        sys.executable, ALIVE, "127.0.0.1", str(port), stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(asking.communicate(), 20)
    return asking.returncode, err.decode()


async def test_container_when_its_rendezvous_serves_then_it_is_healthy_and_afterwards_not(tmp_path: Path) -> None:
    process = await start("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode() for _ in range(3)]
    port = int(re.findall(r"TCP port (\d+)", lines[2])[0])
    assert await checked(port) == (0, "")
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.communicate(), 10)
    status, sentence = await checked(port)
    assert status == 1
    assert sentence.startswith(f"no rendezvous answers at 127.0.0.1:{port}: ")
