"""What a rendezvous tells Prometheus."""

import asyncio
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.errors import CannotServe
from kafila_rendezvous.numbers import HOST, Holds, RendezvousNumbers, told
from kafila_rendezvous.server import serve


def asked(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


async def test_rendezvous_when_asked_for_numbers_then_tells_them_on_this_machine_until_it_stops() -> None:
    async with serve(RendezvousConfig(port=0, metrics_port=0)) as serving:
        assert serving.metrics_port is not None
        with socket.create_connection(("127.0.0.1", serving.port)):
            found: dict[str, float] = {}
            while not found.get("kafila_rendezvous_connections"):
                found = await asyncio.to_thread(asked, serving.metrics_port)
        assert found["kafila_rendezvous_connections"] == 1
        assert found["kafila_rendezvous_rooms"] == found["kafila_rendezvous_relay_bytes_total"] == 0
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(asked, serving.metrics_port)


async def test_rendezvous_when_not_told_to_then_has_no_numbers() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        assert serving.metrics_port is None


def test_numbers_when_the_port_is_taken_then_one_sentence_says_which() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotServe, match=f"port {port}"), told(port, Holds):
            pass


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus) is not installed")
def test_numbers_when_promtool_looks_at_them_then_it_finds_nothing() -> None:
    registry = CollectorRegistry()
    registry.register(RendezvousNumbers(Holds))
    text = generate_latest(registry)
    said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")
