"""Byte ranges from the model host, several at a time."""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.weights.fetching.landing import Tally
from kafila_sidecar.weights.fetching.transfer import Changed, Download, Known, Patience, transfer
from kafila_sidecar.weights.format.manifest import PREFIX_BYTES, header_span
from kafila_sidecar.weights.format.ranges import Ranges, pieces
from kafila_sidecar.weights.format.units import Unit
from kafila_sidecar.weights.providers.hub import FilePlace, Hub
from kafila_sidecar.weights.providers.source import Source, WeightFile
from kafila_sidecar.weights.store.store import Store
from kafila_sidecar.weights.tasks import tasks
from kafila_sidecar.weights.threads import Stop, in_thread

log = logging.getLogger(__name__)

STREAMS = 6
"""Requests at once."""
LOOK_S = 15.0
"""How long the host is waited for where a person waits too, or where nothing depends on it."""


class FromHost:
    """The model host as the source of one checkpoint's weights."""

    def __init__(self, *, hub: Hub, source: Source, store: Store, patience: Patience, piece_bytes: int) -> None:
        self._hub = hub
        self._source = source
        self._store = store
        self._patience = patience
        self._piece_bytes = piece_bytes

    async def bring(self, missing: Mapping[str, Ranges], tally: Tally) -> None:
        """All of it into the store. Raises as `transfer` does."""
        queue = deque(self._downloads(missing))

        async def work() -> None:
            while queue:
                await self._to_disk(queue.popleft(), tally)

        with self._hub:
            async with tasks() as group:
                for _ in range(min(STREAMS, len(queue))):
                    group.create_task(work())

    async def headers(self, files: Iterable[WeightFile]) -> dict[str, tuple[Known, bytes]]:
        """The files' first bytes up to the end of their headers, by name."""
        gate = asyncio.Semaphore(STREAMS)

        async def header(file: WeightFile) -> tuple[Known, bytes]:
            async with gate:
                return await in_thread(lambda stop: self._header(file, stop))

        with self._hub:
            async with tasks() as group:
                running = {file.name: group.create_task(header(file)) for file in files}
        return {name: task.result() for name, task in running.items()}

    async def digest(self, unit: Unit) -> bytes | None:
        """SHA-256 of a unit as the host has it; None where it doesn't tell in a moment."""
        download = Download(self._place(unit.file), self._known(unit.file), unit.start, unit.end)
        try:
            with self._hub:
                content = await in_thread(lambda stop: self._collected(download, stop))
        except KafilaError as error:
            log.info("digest_not_checked file=%s code=%s", unit.file, error.code)
            return None
        return hashlib.sha256(content).digest()

    # ---- Private

    def _downloads(self, missing: Mapping[str, Ranges]) -> Iterable[Download]:
        for file, ranges in missing.items():
            for span in pieces(ranges, self._piece_bytes):
                yield Download(self._place(file), self._known(file), *span)

    async def _to_disk(self, download: Download, tally: Tally) -> None:
        writer = self._store.writer(download.place.file, download.at)

        def keep(data: bytes) -> None:
            writer.write(data)
            tally.came(len(data))

        def work(stop: Stop) -> None:
            transfer(self._hub, download, keep, writer.settle, tally.waits, self._patience, stop)

        await in_thread(work)

    def _header(self, file: WeightFile, stop: Stop) -> tuple[Known, bytes]:
        start = Download(self._place(file.name), None, 0, PREFIX_BYTES)
        prefix = self._collected(start, stop)
        if start.known is None or file.size_bytes not in (None, start.known.size_bytes):
            raise Changed(start.place)
        span = header_span(file.name, prefix, start.known.size_bytes)
        return start.known, prefix + self._collected(Download(start.place, start.known, *span), stop)

    def _collected(self, download: Download, stop: Stop) -> bytes:
        content = bytearray()
        patience = replace(self._patience, longest_s=min(self._patience.longest_s, LOOK_S))
        transfer(self._hub, download, content.extend, lambda: None, lambda _: None, patience, stop)
        return bytes(content)

    def _known(self, file: str) -> Known | None:
        held = self._store.held(file)
        return None if held is None else Known(held.size_bytes, held.etag)

    def _place(self, file: str) -> FilePlace:
        return FilePlace(self._source.model, self._source.revision, file)
