"""What processes that crash, hang or are killed leave behind: no picture of their memory, no folder for long."""

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafila_rendezvous.front.folder import PREFIX, HeldFolder, clear_stale
from kafila_sidecar.errors import Refused
from kafila_sidecar.machine.home import held

RENDERS = """
import asyncio, sys
from pathlib import Path
from kafila_sidecar.runtime.text.apart.text_process import TextProcess
from tests.hostile.test_prompts_process import folder_with

async def main():
    await TextProcess(folder_with(Path(sys.argv[1])), model="m").vocabulary()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

HANG = """
import threading
from kafila_sidecar import __main__ as sidecar
sidecar.START_DEADLINE_S = 1
sidecar.start_in_time()
threading.Event().wait()  # as for a thread that died as it began
"""


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def left(parent: Path, name: str = "left", mode: int = 0o700) -> Path:
    """A folder as somebody leaves it who was killed."""
    folder = parent / f"{PREFIX}{name}"
    folder.mkdir(mode=mode)
    (folder / "s").touch()
    return folder


def hold(parent: str, told: "multiprocessing.synchronize.Event") -> None:
    HeldFolder(Path(parent))
    told.set()
    time.sleep(60)


def test_folder_when_its_process_is_killed_then_the_next_start_clears_it_away_and_not_before(parent: Path) -> None:
    context = multiprocessing.get_context("spawn")
    told = context.Event()
    process = context.Process(target=hold, args=(str(parent), told), daemon=True)
    process.start()
    assert told.wait(60)
    (folder,) = parent.iterdir()
    clear_stale(parent)
    assert folder.is_dir()
    process.kill()
    process.join()
    own = HeldFolder(parent)
    assert list(parent.iterdir()) == [own.path]
    own.close()
    assert list(parent.iterdir()) == []


def test_clearing_when_links_and_others_things_lie_there_then_they_stay_and_so_does_what_links_lead_to(
    parent: Path, tmp_path: Path
) -> None:
    target = left(tmp_path, "target")
    (left(parent, "inside") / "link").symlink_to(target)
    (parent / f"{PREFIX}link").symlink_to(target)
    (parent / f"{PREFIX}file").touch()
    left(parent, "open", 0o755)
    (parent / "kafila-other").mkdir(mode=0o700)
    clear_stale(parent)
    names = {f"{PREFIX}link", f"{PREFIX}file", f"{PREFIX}open", "kafila-other"}
    assert {one.name for one in parent.iterdir()} == names
    assert (target / "s").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user's")
def test_clearing_when_a_folder_is_another_users_then_it_stays(parent: Path) -> None:
    folder = left(parent)
    os.chown(folder, 65534, 65534)
    clear_stale(parent)
    assert folder.is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process may leave")
@pytest.mark.parametrize("program", ["kafila_rendezvous", "kafila_sidecar"])
def test_process_when_it_runs_then_the_system_keeps_no_core_of_it(program: str, tmp_path: Path) -> None:
    with running(program, tmp_path) as process:
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    (core,) = [line.split() for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core[4:6] == ["0", "0"]


@contextlib.contextmanager
def running(program: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Until it serves, and a while longer."""
    if program == "kafila_rendezvous":
        options = ["--embedded", "--listen", "127.0.0.1:0", "--data", str(folder)]
    else:
        options = ["--socket", str(folder / "s"), "--data", str(folder / "data")]
    process = subprocess.Popen(
        [sys.executable, "-m", program, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if program == "kafila_rendezvous":
            json.loads(process.stdout.readline())
        else:
            while "sidecar_ready" not in process.stderr.readline():
                assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sidecar_when_its_start_hangs_then_it_ends_in_words() -> None:
    ended = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("kafila-sidecar: it did not start within 1 s: ")
    assert ended.stderr.count("\n") == 1


def test_text_process_when_its_sidecar_is_killed_then_its_folder_goes_with_the_next_start(
    parent: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", RENDERS, str(tmp_path / "model")]
    path = os.pathsep.join(sys.path)
    here = {**os.environ, "TMPDIR": str(parent), "PYTHONPATH": path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=here) as sidecar:
        assert sidecar.stdout is not None
        assert sidecar.stdout.readline() == b"ready\n"
        assert len(list(parent.iterdir())) == 1
        sidecar.kill()
    clear_stale(parent)
    assert list(parent.iterdir()) == []


async def test_owner_file_when_it_is_a_link_then_refused_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "owner").symlink_to(tmp_path / "mine")
    with pytest.raises(Refused, match="can't open"):
        async with held(tmp_path / "home"):
            pass
    assert (tmp_path / "mine").read_text() == "mine"
