"""A checkpoint as the rest of the sidecar sees it: what it is, how large its parts are, its weights on this disk."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kafila_sidecar.models.anatomy import Anatomy, Headers
from kafila_sidecar.weights.fetching.fetch import Fetcher, Progress, count
from kafila_sidecar.weights.fetching.transfer import Patience
from kafila_sidecar.weights.format.layout import (
    anatomy_of_files,
    byte_ranges,
    shard_tensors,
)
from kafila_sidecar.weights.format.manifest import Manifest
from kafila_sidecar.weights.providers.hub import Hub
from kafila_sidecar.weights.providers.resolve import resolve
from kafila_sidecar.weights.providers.source import GENERATION_CONFIG, Source, read_optional_json
from kafila_sidecar.weights.store.store import Store

Examine = Callable[[Mapping[str, Any], Headers], Awaitable[Anatomy]]
"""Takes config.json and the headers of all tensors; raises Refused where they don't fit each other."""


class Checkpoint:
    """One model at one revision, made by `open_checkpoint`; sessions of the same sidecar share one.

    Its small files and headers are on this disk when it is made. `small_bytes` (configuration and tokenizer),
    `header_bytes` and `fetched_bytes` (tensors) count what this object has brought over the network.
    """

    def __init__(
        self, *, source: Source, store: Store, fetcher: Fetcher, manifest: Manifest, anatomy: Anatomy | None
    ) -> None:
        """Raises Refused if the checkpoint's layout or dtype can't be run.

        anatomy: what its parts take in memory; without it, what they take in their files is told.
        """
        self._store = store
        self._fetcher = fetcher
        self.manifest = manifest
        self.model = source.model
        self.revision = source.revision
        self.config: Mapping[str, Any] = source.config
        self.generation_config = read_optional_json(source.model, source.small_files, GENERATION_CONFIG)
        self.small_files: Path = source.small_files  # a folder that tokenizer loaders can read
        self.small_bytes = source.small_bytes
        self.folder: Path = source.folder
        if anatomy is None:
            anatomy = anatomy_of_files(manifest, source.config)
        self.anatomy = anatomy
        self.sizes: dict[str, Any] = anatomy.sizes  # the planner's "model"
        self.activation_dtype = anatomy.activation_dtype  # "F32", "F16", "BF16"
        self.quantization = anatomy.quantization  # for people: "BF16", "4-bit"
        self.parameters = anatomy.parameters

    @property
    def header_bytes(self) -> int:
        return self._fetcher.header_bytes

    @property
    def fetched_bytes(self) -> int:
        return self._fetcher.fetched_bytes

    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]:
        """Tensor names of a stage with blocks `[start, end)`, with embedding, norm, unembedding if it is the `head`."""
        return shard_tensors(self.manifest, self.config, start, end, head)

    def shard_bytes(self, names: Iterable[str]) -> int:
        return sum(self.manifest.tensors[name].size_bytes for name in names)

    def download_bytes(self, names: Iterable[str]) -> int:
        """What `fetch` would bring over the network now."""
        return count(self._store.missing(byte_ranges(self.manifest, names)))

    async def fetch(self, names: Iterable[str], *, progress: Progress | None = None) -> None:
        """Brings the named tensors here, and no other byte; `progress` is told (bytes here, bytes wanted).

        May be cancelled at any time and called again: it goes on where it stopped. Raises Refused (disk too small or
        full, a file damaged or changed at the host, another process fetching), Denied, NotFound, Unavailable.
        """
        await self._fetcher.tensors(self.manifest, names, progress)

    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]:
        """Which of the named tensors to load from which file, `.partial` ones among them.

        Raises Refused for a tensor that is not wholly here.
        """
        return self._store.files_for(self.manifest.tensors[name] for name in names)


async def open_checkpoint(
    model: str,
    *,
    endpoint: str,
    token: str | None,
    cache: Path,
    revision: str | None = None,
    hub_cache: Path | None = None,
    patience: Patience | None = None,
    examine: Examine | None = None,
) -> Checkpoint:
    """Resolves `model` and reads its headers, fetching both where they are not in `cache` yet.

    `model` is a Hub repository id or the absolute path of a folder; `revision` (as another member's checkpoint has
    it) asks for exactly that one. `examine` says, with MLX, whether the tensors fit the configuration and what they
    take in memory. Raises InvalidInput, NotFound, Denied, Refused, Unavailable, TimedOut.
    """
    source = await resolve(model, endpoint=endpoint, token=token, cache=cache, revision=revision, hub_cache=hub_cache)
    store = Store(source.folder, whole=source.whole)
    hub = Hub(endpoint=endpoint, token=token)
    fetcher = Fetcher(hub=hub, source=source, store=store, patience=patience or Patience())
    manifest = await fetcher.manifest()
    anatomy = None if examine is None else await examine(source.config, manifest.tensors)
    return Checkpoint(source=source, store=store, fetcher=fetcher, manifest=manifest, anatomy=anatomy)
