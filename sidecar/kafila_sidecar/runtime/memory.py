"""How much memory this machine can lend to a shard. MLX thread only."""

import ctypes
import os
import resource
from pathlib import Path

import mlx.core as mx
import psutil

from kafila_sidecar.errors import Refused

MARGIN_BYTES = 1 << 30  # left to the rest of the machine where CPU and model share the memory
WITHOUT_END = 1 << 62
CGROUP = Path("/sys/fs/cgroup")


def usable_bytes() -> int:
    """Bytes that MLX may still take here, less a margin where CPU and model share the memory."""
    return max(0, free_bytes() - (MARGIN_BYTES if _is_shared() else 0))


def check_room(needed_bytes: int) -> None:
    """Before so much is taken at once: MLX's CPU back end dies of memory that it does not get, and of too little the
    system ends this process. Raises Refused."""
    if needed_bytes > (free := free_bytes()):
        raise Refused(
            f"the weights of this stage take {needed_bytes / 1e9:.2f} GB, and this machine has {free / 1e9:.2f} GB of"
            " memory left for them: end other programs, or lend less to the session (--memory)"
        )


def give_back() -> None:
    """What was freed goes back to the system. glibc would keep it: after the first large free it takes pieces of many
    MB from its heaps, and what stands behind one small piece that is still used never leaves."""
    mx.clear_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def free_bytes() -> int:
    """Bytes that MLX could still get: of Apple's recommended working set, of CUDA's free memory, or of the RAM that is
    available to this process; what MLX holds already counts as taken."""
    info = mx.device_info()
    if "max_recommended_working_set_size" in info:
        return max(0, int(info["max_recommended_working_set_size"]) - mx.get_active_memory())
    if mx.default_device() == mx.Device(mx.gpu):
        return int(info["free_memory"]) + mx.get_cache_memory()
    available = min(psutil.virtual_memory().available, container_bytes(CGROUP), process_bytes())
    return max(0, available + mx.get_cache_memory())


def _is_shared() -> bool:
    return "max_recommended_working_set_size" not in mx.device_info() and mx.default_device() == mx.Device(mx.cpu)


def process_bytes() -> int:
    """Bytes left under this process' own limit of addresses (`ulimit -v`), without end where there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return WITHOUT_END
    return max(0, limit - psutil.Process().memory_info().vms)


def container_bytes(cgroup: Path) -> int:
    """Bytes left under a container's limit (cgroup v2), without end where there is none."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        fields = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(fields.get("inactive_file", 0)))
    except (OSError, ValueError):  # no container, no limit ("max"), or no Linux
        return WITHOUT_END


def device_name() -> str:
    """What MLX computes on, for people and for telling machines apart: "cpu: … (8 cores)", "gpu: Apple M3 Pro"."""
    info = mx.device_info()
    name = info.get("device_name") or info.get("architecture") or "unknown"
    if mx.default_device() == mx.Device(mx.gpu):
        return f"gpu: {name}"
    return f"cpu: {name} ({os.cpu_count()} cores)"
