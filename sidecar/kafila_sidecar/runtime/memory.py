"""How much memory this machine can lend to a shard. MLX thread only."""

import os
from pathlib import Path

import mlx.core as mx
import psutil

MARGIN_BYTES = 1 << 30  # left to the rest of the machine where CPU and model share the memory
CGROUP = Path("/sys/fs/cgroup")


def usable_bytes() -> int:
    """Bytes that MLX may still take here: Apple's recommended working set, CUDA's free memory, or available RAM less a
    margin; what MLX holds already counts as taken."""
    info = mx.device_info()
    if "max_recommended_working_set_size" in info:
        return max(0, int(info["max_recommended_working_set_size"]) - mx.get_active_memory())
    if mx.default_device() == mx.Device(mx.gpu):
        return int(info["free_memory"]) + mx.get_cache_memory()
    available = min(psutil.virtual_memory().available, container_bytes(CGROUP))
    return max(0, available + mx.get_cache_memory() - MARGIN_BYTES)


def container_bytes(cgroup: Path) -> int:
    """Bytes left under a container's limit (cgroup v2), without end where there is none."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        fields = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(fields.get("inactive_file", 0)))
    except (OSError, ValueError):  # no container, no limit ("max"), or no Linux
        return 1 << 62


def device_name() -> str:
    """What MLX computes on, for people and for telling machines apart: "cpu: … (8 cores)", "gpu: Apple M3 Pro"."""
    info = mx.device_info()
    name = info.get("device_name") or info.get("architecture") or "unknown"
    if mx.default_device() == mx.Device(mx.gpu):
        return f"gpu: {name}"
    return f"cpu: {name} ({os.cpu_count()} cores)"
