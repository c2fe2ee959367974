"""A checkpoint as the rest of the sidecar sees it: what it is, how large its parts are, its weights on this disk."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.anatomy import Anatomy, Headers
from kafila_sidecar.models.gaps import gap_tokens
from kafila_sidecar.small_files import CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG, read_optional_json
from kafila_sidecar.weights.fetching.fetch import PIECE_BYTES, Fetcher
from kafila_sidecar.weights.fetching.landing import Members, Progress, Waiting, count
from kafila_sidecar.weights.fetching.transfer import Patience
from kafila_sidecar.weights.format.layout import (
    anatomy_of_files,
    byte_ranges,
    shard_tensors,
)
from kafila_sidecar.weights.format.local import check_file
from kafila_sidecar.weights.format.manifest import Manifest
from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.format.units import Unit
from kafila_sidecar.weights.providers.folder import contents, folder_name
from kafila_sidecar.weights.providers.hub import Hub
from kafila_sidecar.weights.providers.resolve import resolve
from kafila_sidecar.weights.providers.source import Source
from kafila_sidecar.weights.store.library import in_use
from kafila_sidecar.weights.store.store import Store
from kafila_sidecar.weights.store.verify import Soundness

Examine = Callable[[Mapping[str, Any], Headers, int], Awaitable[Anatomy]]
"""Takes config.json, the headers of all tensors, and the bits that matrices are packed to while loading, 0 for as they
are; raises Refused where they don't fit each other."""

MakeRoom = Callable[[int, Path], None]
"""Asked before so many bytes come into a folder; raises Refused where they must not."""

FETCH_ROUNDS = 3
"""How often what came is read, found damaged and fetched again, before the disk is blamed."""


class Checkpoint:
    """One model at one revision, made by `open_checkpoint`; sessions of the same sidecar share one.

    Its small files and headers are on this disk when it is made. `small_bytes` (configuration and tokenizer),
    `header_bytes` and `fetched_bytes` (tensors) count what this object has brought over the network, from members too.
    """

    def __init__(
        self,
        *,
        source: Source,
        store: Store,
        fetcher: Fetcher,
        manifest: Manifest,
        anatomy: Anatomy | None,
        make_room: MakeRoom,
        bits: int = 0,
        unpacked_block_bytes: int = 0,
    ) -> None:
        """Raises Refused if the checkpoint's layout or dtype can't be run.

        anatomy: what its parts take in memory; without it, what they take in their files is told. bits: what its
        matrices are packed to while they are loaded, 0 for as they are. unpacked_block_bytes: of the largest block
        before that.
        """
        self._source = source
        self.bits = bits
        self.unpacked_block_bytes = unpacked_block_bytes
        self._make_room = make_room
        self._store = store
        self._soundness = Soundness(store)
        self._fetcher = fetcher
        self.manifest = manifest
        self.model = source.model
        self.revision = source.revision
        self.config: Mapping[str, Any] = source.config
        self.generation_config = read_optional_json(source.model, source.small_files, GENERATION_CONFIG)
        self.small_files: Path = source.small_files  # a folder that tokenizer loaders can read
        self.small_bytes = source.small_bytes
        self.gap = gap_tokens(_added_tokens(source))  # of a model that fills in the middle
        self.weight_bytes = sum(tensor.size_bytes for tensor in manifest.tensors.values())
        self.folder: Path = source.folder
        self.description = source.description  # of a folder, which no model host has
        self.is_local = source.is_local  # a folder of somebody else's on this disk, used in place
        if anatomy is None:
            anatomy = anatomy_of_files(manifest, source.config)
        self.anatomy = anatomy
        self.sizes: dict[str, Any] = anatomy.sizes  # the planner's "model"
        self.activation_dtype = anatomy.activation_dtype  # "F32", "F16", "BF16"
        self.quantization = anatomy.quantization  # for people: "BF16", "4-bit", "4-bit, made here from BF16"
        self.parameters = anatomy.parameters

    def packed(self, bits: int, anatomy: Anatomy) -> "Checkpoint":
        """The same files, with what they take in memory when their matrices are packed to so many bits."""
        return Checkpoint(
            source=self._source,
            store=self._store,
            fetcher=self._fetcher,
            manifest=self.manifest,
            anatomy=anatomy,
            make_room=self._make_room,
            bits=bits,
            unpacked_block_bytes=max(block.held_bytes for block in self.anatomy.blocks),
        )

    @property
    def header_bytes(self) -> int:
        return self._fetcher.header_bytes

    @property
    def fetched_bytes(self) -> int:
        return self._fetcher.fetched_bytes

    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]:
        """Tensor names of a stage with blocks `[start, end)`, with embedding, norm, unembedding if it is the `head`."""
        return shard_tensors(self.manifest, self.config, start, end, head)

    @property
    def is_there(self) -> bool:
        """Whether its folder is as it was when it was opened: another server of this user may have removed it."""
        return (self.small_files / CONFIG).is_file()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps what is on this disk from being removed to make room. Raises Refused where that can't be noted."""
        with nullcontext() if self.is_local else in_use(self.folder):
            self._store.reload()
            yield

    def shard_bytes(self, names: Iterable[str]) -> int:
        return sum(self.manifest.tensors[name].size_bytes for name in names)

    def download_bytes(self, names: Iterable[str]) -> int:
        """What `fetch` would bring over the network now."""
        return count(self._store.missing(byte_ranges(self.manifest, names)))

    async def fetch(
        self,
        names: Iterable[str],
        *,
        progress: Progress | None = None,
        waiting: Waiting | None = None,
        members: Members | None = None,
    ) -> None:
        """Brings the named tensors here, and no other byte; `progress` is told (bytes here, bytes wanted), `waiting`
        what is waited for meanwhile. `members` are asked before the model host.

        What has changed on disk since it came is fetched again. May be cancelled at any time and called again: it goes
        on where it stopped. Raises Refused (disk too small or full, a file damaged or changed at the host, another
        process fetching, a disk that doesn't keep what is written), Denied, NotFound, Unavailable.
        """
        wanted = frozenset(names)
        if needed_bytes := self.download_bytes(wanted):
            await asyncio.to_thread(self._make_room, needed_bytes, self.folder)
        for _ in range(FETCH_ROUNDS):
            await self._fetcher.tensors(self.manifest, wanted, progress=progress, waiting=waiting, members=members)
            if not await self._fetcher.damaged(self.manifest, wanted):
                return
        raise Refused(f"the disk under {self.folder} doesn't keep what is written: check it, or set KAFILA_HOME")

    @property
    def name(self) -> str:
        """As others are told it: without the path of a folder."""
        return self.model if self.description is None else folder_name(self.model)

    def described(self) -> Iterator[bytes]:
        """A folder's description, small files and headers; see `folder.contents`. Raises Refused for others."""
        if self.description is None:
            raise Refused(f"{self.model} is no folder: its files are at the model host")
        return contents(self.description, self.small_files, self._store)

    @property
    def held(self) -> dict[str, Ranges]:
        """What is here of the weight files, by name."""
        held = {name: self._store.held(name) for name in self.manifest.files}
        return {name: entry.ranges for name, entry in held.items() if entry is not None}

    def unit(self, unit: Unit) -> bytes | None:
        """A unit's bytes; None if they are not here, or not what they were when they came. Blocks."""
        held = self._store.held(unit.file)
        if held is None or not held.ranges.covers(unit.start, unit.end):
            return None
        if not self._soundness.holds(unit.file, unit.start, unit.end):
            return None
        data = self._store.read(unit.file, unit.start, unit.end)
        return data if len(data) == unit.size_bytes else None

    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]:
        """Which of the named tensors to load from which file, `.partial` ones among them.

        Raises Refused for a tensor that is not wholly here, or a file that is another one by now.
        """
        files = self._store.files_for(self.manifest.tensors[name] for name in names)
        for path, held in files.items():
            check_file(path, (self.manifest.tensors[name] for name in held))
        return files


def _added_tokens(source: Source) -> frozenset[str]:
    """The tokens that the tokenizer's configuration adds to its vocabulary."""
    added = read_optional_json(source.model, source.small_files, TOKENIZER_CONFIG).get("added_tokens_decoder")
    entries = added.values() if isinstance(added, Mapping) else ()
    return frozenset(str(entry.get("content")) for entry in entries if isinstance(entry, Mapping))


async def open_checkpoint(
    model: str,
    *,
    hub: Hub,
    cache: Path,
    revision: str | None = None,
    hub_cache: Path | None = None,
    patience: Patience | None = None,
    piece_bytes: int = PIECE_BYTES,
    make_room: MakeRoom = lambda needed_bytes, folder: None,
    examine: Examine | None = None,
) -> Checkpoint:
    """Resolves `model` and reads its headers, fetching both where they are not in `cache` yet.

    `model` is a Hub repository id or the absolute path of a folder; `revision` (as another member's checkpoint has
    it) asks for exactly that one. `examine` says, with MLX, whether the tensors fit the configuration and what they
    take in memory. Raises InvalidInput, NotFound, Denied, Refused, Unavailable, TimedOut.
    """
    source = await resolve(model, hub=hub, cache=cache, revision=revision, hub_cache=hub_cache)
    return await open_source(
        source, hub=hub, patience=patience, piece_bytes=piece_bytes, make_room=make_room, examine=examine
    )


async def open_source(
    source: Source,
    *,
    hub: Hub | None = None,
    patience: Patience | None = None,
    piece_bytes: int = PIECE_BYTES,
    make_room: MakeRoom = lambda needed_bytes, folder: None,
    examine: Examine | None = None,
) -> Checkpoint:
    """A checkpoint whose small files are here. Raises Refused, and what the model host may raise."""
    store = Store(source.folder, whole=source.whole)
    fetcher = Fetcher(
        hub=None if source.description is not None else hub,
        source=source,
        store=store,
        patience=patience or Patience(),
        piece_bytes=piece_bytes,
    )
    manifest = await fetcher.manifest()
    anatomy = None if examine is None else await examine(source.config, manifest.tensors, 0)
    return Checkpoint(
        source=source, store=store, fetcher=fetcher, manifest=manifest, anatomy=anatomy, make_room=make_room
    )
