"""Fetching that is killed at any moment goes on with the rest, and the bytes are right."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from tests.support.model_host import Faults, ModelHost

Make = Callable[..., Path]
REPO = "kafila/model"
SCRIPT = """
import asyncio, sys
from pathlib import Path
from kafila_sidecar.weights.checkpoint import open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub

async def main():
    repo, endpoint, cache = sys.argv[1:]
    hub = Hub(endpoint=endpoint)
    checkpoint = await open_checkpoint(repo, hub=hub, cache=Path(cache), piece_bytes=65536)
    print("open", flush=True)
    await checkpoint.fetch(checkpoint.shard(start=0, end=4, head=True))

asyncio.run(main())
"""


def fetch_and_kill(endpoint: str, cache: Path, after_s: float) -> None:
    command = [sys.executable, "-c", SCRIPT, REPO, endpoint, str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)


async def opened(endpoint: str, cache: Path) -> Checkpoint:
    return await open_checkpoint(REPO, hub=Hub(endpoint=endpoint), cache=cache)


def assert_whole(folder: Path, checkpoint: Checkpoint) -> None:
    for path in folder.glob("*.safetensors"):
        assert (checkpoint.folder / path.name).read_bytes() == path.read_bytes()


async def survive(folder: Path, cache: Path, kills: int, seed: int) -> None:
    random_moment = random.Random(seed)
    with ModelHost({REPO: folder}, faults=Faults(only=".safetensors", rate_bytes_per_s=4e6)) as host:
        left = []
        for _ in range(kills):
            await asyncio.to_thread(fetch_and_kill, host.endpoint, cache, random_moment.uniform(0.0, 0.12))
            checkpoint = await opened(host.endpoint, cache)
            left.append(checkpoint.download_bytes(checkpoint.shard(start=0, end=4, head=True)))
        assert left == sorted(left, reverse=True)  # nothing that counted is lost
        host.faults = Faults()
        last = await opened(host.endpoint, cache)
        sent = host.sent_bytes(".safetensors")
        await last.fetch(last.shard(start=0, end=4, head=True))
        assert host.sent_bytes(".safetensors") - sent == last.fetched_bytes == left[-1]
    assert_whole(folder, last)


async def test_fetch_when_killed_at_random_moments_then_only_the_rest_comes(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    await survive(checkpoint_folder(width=256), tmp_path, kills=5, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
async def test_fetch_when_killed_at_fifty_random_moments_then_only_the_rest_comes(
    checkpoint_folder: Make, tmp_path: Path, seed: int
) -> None:
    await survive(checkpoint_folder(width=256), tmp_path, kills=10, seed=seed)
