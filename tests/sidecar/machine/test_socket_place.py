"""This machine's UDP port is the same from start to start."""

from pathlib import Path

import pytest

from kafila_sidecar.machine.socket_place import FILE, open_where_it_was


async def test_port_when_started_again_then_it_is_the_same(tmp_path: Path) -> None:
    first = open_where_it_was(tmp_path)
    port = first.address[1]
    await first.close()
    second = open_where_it_was(tmp_path)
    assert second.address[1] == port
    beside = open_where_it_was(tmp_path)  # the port is taken
    assert beside.address[1] != port
    await second.close()
    await beside.close()


@pytest.mark.parametrize("noted", [b"", b"x", b"99999999999999", "٣".encode(), b"-1", b"70000"])
async def test_port_when_what_was_noted_is_none_then_any(tmp_path: Path, noted: bytes) -> None:
    (tmp_path / FILE).write_bytes(noted)
    endpoint = open_where_it_was(tmp_path)
    assert endpoint.address[1]
    await endpoint.close()


async def test_port_when_it_can_not_be_noted_then_it_is_open_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    endpoint = open_where_it_was(tmp_path / "file")
    assert endpoint.address[1]
    await endpoint.close()
