"""A home belongs to one sidecar at a time."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from kafila_sidecar.errors import Refused
from kafila_sidecar.machine import home

HOLDER = """
import asyncio, sys
from pathlib import Path
from kafila_sidecar.machine.home import held

async def main():
    async with held(Path(sys.argv[1])):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_home_when_another_process_has_it_then_refused_in_words_until_that_is_dead(tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(tmp_path), stdout=PIPE)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(Refused, match=f"process {holder.pid}"):
        async with home.held(tmp_path):
            raise AssertionError
    holder.kill()
    await holder.wait()
    async with home.held(tmp_path):
        pass


async def test_home_when_the_file_is_nonsense_then_it_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / home.FILE).write_bytes(b"\xff" * 100)
    async with home.held(tmp_path):
        assert (tmp_path / home.FILE).read_text().isdigit()


async def test_home_when_it_can_not_be_written_then_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / home.FILE).mkdir()
    with pytest.raises(Refused, match="can't open"):
        async with home.held(tmp_path):
            raise AssertionError
