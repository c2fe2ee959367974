from pathlib import Path

import pytest

from kafila_sidecar.runtime.memory import container_bytes, device_name, usable_bytes

pytestmark = pytest.mark.mlx


def cgroup(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text("700\n")
    (folder / "memory.stat").write_text("anon 600\ninactive_file 50\n")
    return folder


@pytest.mark.parametrize(("limit", "left"), [("1000\n", 350), ("500\n", 0), ("max\n", 1 << 62)])
def test_container_when_it_has_a_limit_then_what_is_left_of_it(tmp_path: Path, limit: str, left: int) -> None:
    assert container_bytes(cgroup(tmp_path, limit)) == left


def test_container_when_there_is_none_then_without_end(tmp_path: Path) -> None:
    assert container_bytes(tmp_path) == 1 << 62


def test_usable_when_asked_then_something_and_on_a_named_device() -> None:
    assert usable_bytes() >= 0
    assert device_name().startswith(("cpu: ", "gpu: "))
