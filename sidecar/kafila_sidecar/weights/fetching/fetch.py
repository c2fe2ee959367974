"""Downloads exactly the bytes that a stage needs into its store: headers first, then ranges, several at a time."""

import asyncio
import shutil
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.fetching.transfer import Changed, Download, Known, Patience, transfer
from kafila_sidecar.weights.format.layout import byte_ranges
from kafila_sidecar.weights.format.manifest import (
    PREFIX_BYTES,
    FileLayout,
    Manifest,
    header_span,
    make_manifest,
    parse_header,
)
from kafila_sidecar.weights.format.ranges import Ranges, pieces
from kafila_sidecar.weights.providers.hub import FilePlace, Hub
from kafila_sidecar.weights.providers.source import Source, WeightFile
from kafila_sidecar.weights.store.store import Store, StoreBusy
from kafila_sidecar.weights.store.verify import damaged
from kafila_sidecar.weights.tasks import tasks
from kafila_sidecar.weights.threads import Stop, in_thread

STREAMS = 6
"""Requests at once."""
PIECE_BYTES = 32 << 20
"""The most bytes of one request, which are journaled together."""
LOCK_WAIT_S = 10.0
LOCK_RETRY_S = 0.1

Progress = Callable[[int, int], None]
"""Told how many of the wanted bytes are here, and how many are wanted."""


class Fetcher:
    """Fetches one source into one store. What is here already is neither fetched again nor asks for the network."""

    def __init__(
        self, *, hub: Hub, source: Source, store: Store, patience: Patience, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._hub = hub
        self._source = source
        self._store = store
        self._patience = patience
        self._piece_bytes = piece_bytes
        self._one_at_a_time = asyncio.Lock()
        self._counting = threading.Lock()
        self.fetched_bytes = 0  # of tensors, received and kept by this object
        self.header_bytes = 0

    async def manifest(self) -> Manifest:
        """Raises HostileHeader, Busy, Changed, Denied, NotFound, Refused, Unavailable."""
        async with self._one_at_a_time:
            layouts = await asyncio.to_thread(self._held_layouts)
            if len(layouts) < len(self._source.weight_files):
                async with locked(self._store):
                    layouts = await asyncio.to_thread(self._held_layouts)  # somebody else's fetching may be over
                    layouts |= await self._headers(
                        file for file in self._source.weight_files if file.name not in layouts
                    )
        return make_manifest((layouts[name] for name in sorted(layouts)), self._source.tensor_files)

    def _held_layouts(self) -> dict[str, FileLayout]:
        layouts = [held_layout(self._store, file.name) for file in self._source.weight_files]
        return {layout.name: layout for layout in layouts if layout is not None}

    async def _headers(self, files: Iterable[WeightFile]) -> dict[str, FileLayout]:
        gate = asyncio.Semaphore(STREAMS)

        async def layout(file: WeightFile) -> FileLayout:
            async with gate:
                return await self._header(file)

        with self._hub:
            async with tasks() as group:
                running = {file.name: group.create_task(layout(file)) for file in files}
        return {name: task.result() for name, task in running.items()}

    async def _header(self, file: WeightFile) -> FileLayout:
        return await in_thread(lambda stop: self._bring_header(file, stop))

    def _bring_header(self, file: WeightFile, stop: Stop) -> FileLayout:
        start = Download(self._place(file.name), None, 0, PREFIX_BYTES)
        prefix = self._collected(start, stop)
        if start.known is None or file.size_bytes not in (None, start.known.size_bytes):
            raise Changed(start.place)
        span = header_span(file.name, prefix, start.known.size_bytes)
        text = self._collected(Download(start.place, start.known, *span), stop)
        layout = parse_header(file.name, text, start.known.size_bytes)
        self._keep_header(layout, start.known, prefix + text)
        return layout

    def _keep_header(self, layout: FileLayout, known: Known, content: bytes) -> None:
        self._store.begin(layout.name, known.size_bytes, known.etag)
        writer = self._store.writer(layout.name, 0)
        writer.write(content)
        writer.settle()
        self.header_bytes += layout.header_bytes

    def _collected(self, download: Download, stop: Stop) -> bytes:
        content = bytearray()
        transfer(self._hub, download, content.extend, lambda: None, self._patience, stop)
        return bytes(content)

    async def tensors(self, manifest: Manifest, names: Iterable[str], progress: Progress | None = None) -> None:
        """Fetches what the store lacks of the named tensors. May be cancelled: what has come by then is kept.

        Raises Refused on too little disk or a damaged file, Busy, Changed, Denied, Unavailable.
        """
        wanted = byte_ranges(manifest, names)
        async with self._one_at_a_time:
            if self._store.missing(wanted):
                async with locked(self._store):
                    await self._fetch(wanted, progress)

    async def damaged(self, manifest: Manifest, names: Iterable[str]) -> int:
        """Reads the named tensors and forgets bytes that have changed on disk since they came; how many these are.

        Raises Busy if another process fetches meanwhile.
        """
        wanted = byte_ranges(manifest, names)
        async with self._one_at_a_time:
            if all(held is None or not held.sums for held in map(self._store.held, wanted)):
                return 0  # nothing that we wrote: a folder, or the Hub's own cache
            async with locked(self._store):
                return await in_thread(lambda _: damaged(self._store, wanted))

    async def _fetch(self, wanted: Mapping[str, Ranges], progress: Progress | None) -> None:
        missing = self._store.missing(wanted)
        self._check_room(count(missing))
        total, before = count(wanted), count(wanted) - count(missing) - self.fetched_bytes

        def report() -> None:
            if progress is not None:
                progress(before + self.fetched_bytes, total)

        report()
        try:
            await self._download(missing, report)
        except Changed as error:
            self._store.forget(error.file)
            raise
        for file in self._source.weight_files:
            if file.name in wanted:
                await asyncio.to_thread(self._store.finish, file.name, file.sha256)

    def _check_room(self, needed_bytes: int) -> None:
        free_bytes = shutil.disk_usage(self._store.folder).free
        if needed_bytes > free_bytes:
            raise Refused(
                f"{self._source.model} needs {needed_bytes / 1e9:.1f} GB more at {self._store.folder}, "
                f"where {free_bytes / 1e9:.1f} GB are free: make room there"
            )

    async def _download(self, missing: Mapping[str, Ranges], report: Callable[[], None]) -> None:
        queue = deque(self._downloads(missing))

        async def work() -> None:
            while queue:
                await self._to_disk(queue.popleft(), report)

        with self._hub:
            async with tasks() as group:
                for _ in range(min(STREAMS, len(queue))):
                    group.create_task(work())

    def _downloads(self, missing: Mapping[str, Ranges]) -> Iterable[Download]:
        for file, ranges in missing.items():
            held = self._store.held(file)
            known = None if held is None else Known(held.size_bytes, held.etag)
            for span in pieces(ranges, self._piece_bytes):
                yield Download(self._place(file), known, *span)

    async def _to_disk(self, download: Download, report: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        writer = self._store.writer(download.place.file, download.at)

        def keep(data: bytes) -> None:
            writer.write(data)
            with self._counting:
                self.fetched_bytes += len(data)
            loop.call_soon_threadsafe(report)

        await in_thread(lambda stop: transfer(self._hub, download, keep, writer.settle, self._patience, stop))

    def _place(self, file: str) -> FilePlace:
        return FilePlace(self._source.model, self._source.revision, file)


@asynccontextmanager
async def locked(store: Store) -> AsyncIterator[None]:
    """`Store.writing`, after a wait for whoever has the folder, who may only be reading headers. Raises Busy."""
    clock = asyncio.get_running_loop().time
    until_s = clock() + LOCK_WAIT_S
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(store.writing())
                break
            except StoreBusy:
                if clock() > until_s:
                    raise
            await asyncio.sleep(LOCK_RETRY_S)  # a file lock wakes nobody
        yield


def held_layout(store: Store, file: str) -> FileLayout | None:
    """The layout of a file whose header is in the store; None if it isn't."""
    held = store.held(file)
    if held is None or not held.ranges.covers(0, PREFIX_BYTES):
        return None
    span = header_span(file, store.read(file, 0, PREFIX_BYTES), held.size_bytes)
    return parse_header(file, store.read(file, *span), held.size_bytes) if held.ranges.covers(*span) else None


def count(ranges: Mapping[str, Ranges]) -> int:
    return sum(len(of_file) for of_file in ranges.values())
