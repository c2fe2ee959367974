"""What this machine brings to a session: its device, its costs for a checkpoint, the memory that it lends."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kafila_planner.correction import Slowness
from kafila_sidecar.machine.handling import Handling
from kafila_sidecar.models.anatomy import Anatomy, Headers
from kafila_sidecar.models.quantisation import made_here
from kafila_sidecar.net.nat.behaviour import Nat
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN
from kafila_sidecar.runtime.mlx_thread import CallingThread
from kafila_sidecar.runtime.probe.kept import CostStore
from kafila_sidecar.runtime.probe.probe import Measurement, probe
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.weights.checkpoint import Checkpoint

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Measuring:
    """`reserved` says how many bytes the sessions of this machine hold already, or were promised; `activity` is
    theirs."""

    def __init__(
        self, *, mlx: CallingThread, folder: Path, reserved: Callable[[], int], activity: Activity | None = None
    ) -> None:
        self._mlx = mlx
        self._activity = activity or Activity()
        self._folder = folder
        self._reserved = reserved
        self._measured: dict[tuple[str, str, int], Measurement] = {}  # by checkpoint and its packing
        self._handling = Handling(mlx)

    async def device(self) -> tuple[str, int]:
        """The device's name, and the bytes that one more session may use."""
        name, usable_bytes = await self._mlx.run(_device)
        return name, max(0, usable_bytes - self._reserved())

    async def anatomy(self, config: Mapping[str, Any], headers: Headers, bits: int) -> Anatomy:
        """What a checkpoint is made of, from its configuration and headers, once it is packed to so many bits; 0: as it
        is.

        Raises:
            Refused: it can't be run, or tensors and configuration don't fit each other.
        """
        anatomy: Anatomy = await self._mlx.run(_anatomy, config, headers, bits)
        return anatomy

    async def member(self, checkpoint: Checkpoint, *, lend_bytes: int) -> tuple[Json, str]:
        """This machine's entry for the planner, without its name, and its device. `lend_bytes` 0: what is usable.

        Raises:
            Refused: the readings make no sense twice, or not one block fits.
        """
        dtype = _DTYPES[checkpoint.activation_dtype]
        config = made_here(checkpoint.config, checkpoint.bits)
        measured = await probe(
            self._mlx, config, dtype, most_rows=MOST_ROWS_A_RUN, cache=self._folder, activity=self._activity
        )
        self._measured[_id_of(checkpoint)] = measured
        memory_bytes = max(0, measured.memory_bytes - self._reserved())
        entry = {
            **measured.member_json(),
            **await self._handling.entry(checkpoint.config),
            "memory_bytes": min(memory_bytes, lend_bytes) if lend_bytes else memory_bytes,
            **network_entry(Nat(udp=None)),
        }
        return entry, measured.cost.device

    def served(self, checkpoint: Checkpoint, slowness: Slowness) -> None:
        """A stage of it took so many times as long here as was measured: what is kept says so from now on."""
        if measured := self._measured.get(_id_of(checkpoint)):
            CostStore(self._folder).served(measured.key, measured.cost, slowness)


def _id_of(checkpoint: Checkpoint) -> tuple[str, str, int]:
    return checkpoint.model, checkpoint.revision, checkpoint.bits


def network_entry(nat: Nat) -> Json:
    """What the planner reads of a machine's network."""
    return {
        "mapping": nat.mapping.value,
        "filtering": nat.filtering.value,
        "udp": nat.udp is not False,
        "rtt_s": nat.rtt_s,
    }


def _anatomy(config: Mapping[str, Any], headers: Headers, bits: int) -> Anatomy:
    from kafila_sidecar.runtime.shard.making.examine import examine

    return examine(config, headers, bits=bits)


def _device() -> tuple[str, int]:
    from kafila_sidecar.runtime.memory import device_name, usable_bytes

    return device_name(), usable_bytes()
