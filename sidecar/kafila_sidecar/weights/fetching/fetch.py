"""Brings exactly the bytes that a stage needs into its store: headers first, then ranges, from members and from the
model host."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager

from kafila_sidecar.errors import Refused, Unavailable
from kafila_sidecar.weights.fetching.from_host import FromHost
from kafila_sidecar.weights.fetching.landing import Landing, Members, Progress, Tally, Waiting, count
from kafila_sidecar.weights.fetching.transfer import Changed, Known, Patience
from kafila_sidecar.weights.format.layout import byte_ranges
from kafila_sidecar.weights.format.manifest import (
    PREFIX_BYTES,
    FileLayout,
    Manifest,
    header_span,
    make_manifest,
    parse_header,
)
from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.providers.hub import Hub
from kafila_sidecar.weights.providers.source import Source, WeightFile
from kafila_sidecar.weights.store.store import Store, StoreBusy
from kafila_sidecar.weights.store.verify import damaged
from kafila_sidecar.weights.threads import in_thread

PIECE_BYTES = 32 << 20
"""The most bytes of one request to the model host, which are journaled together."""
LOCK_WAIT_S = 10.0
LOCK_RETRY_S = 0.1
ASK_AGAIN_S = 5.0
"""How often members are asked again where there is no other source, and it is said that they are waited for."""


class Fetcher:
    """Fetches one source into one store. What is here already is neither fetched again nor asks for the network."""

    def __init__(
        self, *, hub: Hub | None, source: Source, store: Store, patience: Patience, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """`hub` is None for a folder, which no model host has."""
        self._source = source
        self._store = store
        self._patience = patience
        self._host: FromHost | None = None
        if hub is not None:
            self._host = FromHost(hub=hub, source=source, store=store, patience=patience, piece_bytes=piece_bytes)
        self._one_at_a_time = asyncio.Lock()
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
                        [file for file in self._source.weight_files if file.name not in layouts]
                    )
        return make_manifest((layouts[name] for name in sorted(layouts)), self._source.tensor_files)

    def _held_layouts(self) -> dict[str, FileLayout]:
        layouts = [held_layout(self._store, file.name) for file in self._source.weight_files]
        return {layout.name: layout for layout in layouts if layout is not None}

    async def _headers(self, files: Iterable[WeightFile]) -> dict[str, FileLayout]:
        if self._host is None:
            raise Refused(f"{self._source.model} at {self._store.folder} lacks headers: remove that folder, join again")
        brought = await self._host.headers(files)
        kept = {}
        for name, (known, content) in brought.items():
            kept[name] = await asyncio.to_thread(self._keep_header, name, known, content)
        return kept

    def _keep_header(self, name: str, known: Known, content: bytes) -> FileLayout:
        layout = parse_header(name, content[PREFIX_BYTES:], known.size_bytes)
        self._store.begin(name, known.size_bytes, known.etag)
        writer = self._store.writer(name, 0)
        writer.write(content)
        writer.settle()
        self.header_bytes += layout.header_bytes
        return layout

    async def tensors(
        self,
        manifest: Manifest,
        names: Iterable[str],
        *,
        progress: Progress | None = None,
        waiting: Waiting | None = None,
        members: Members | None = None,
    ) -> None:
        """Fetches what the store lacks of the named tensors, of members first. May be cancelled: what has come by then
        is kept.

        Raises Refused on too little disk or a damaged file, Busy, Changed, Denied, Unavailable.
        """
        wanted = byte_ranges(manifest, names)
        async with self._one_at_a_time:
            if self._store.missing(wanted) or any(map(self._store.is_unnamed, wanted)):
                async with locked(self._store):
                    await self._fetch(manifest, wanted, progress, waiting, members)

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

    async def _fetch(
        self,
        manifest: Manifest,
        wanted: Mapping[str, Ranges],
        progress: Progress | None,
        waiting: Waiting | None,
        members: Members | None,
    ) -> None:
        missing_bytes = count(self._store.missing(wanted))
        self._check_room(missing_bytes)
        tally = Tally(count(wanted) - missing_bytes, count(wanted), progress, waiting)
        digest = None if self._host is None else self._host.digest
        landing = Landing(manifest=manifest, store=self._store, wanted=wanted, tally=tally, digest=digest)
        try:
            await self._finish(landing, wanted, members)  # a process before us may have been killed before it did
            while landing.missing:
                await self._round(landing, members)
                await self._finish(landing, wanted, members)
        except Changed as error:
            self._store.forget(error.file)
            raise
        finally:
            self.fetched_bytes += missing_bytes - count(landing.missing)

    async def _round(self, landing: Landing, members: Members | None) -> None:
        """What members have, and all the rest from the model host, if there is one."""
        if self._host is None:
            if members is None:
                raise Refused(f"{self._source.model} is not wholly here, and only the members of its session have it")
            await self._of_members_only(landing, members)
            return
        if members is not None:
            await members.bring(landing)
        await self._host.bring(landing.missing, landing.tally)

    async def _of_members_only(self, landing: Landing, members: Members) -> None:
        """All of it. Raises Unavailable when nobody has had more for too long."""
        waited_s = 0.0
        while missing := landing.missing:
            await members.bring(landing)
            if count(landing.missing) < count(missing):
                waited_s = 0.0
                continue
            if waited_s >= self._patience.longest_s:
                raise Unavailable(
                    f"nobody in the session has had the rest of {self._source.model} for {waited_s / 60:.0f} minutes: "
                    "start the session again on the machine with the folder"
                )
            landing.tally.waits(
                f"no member that can be reached has the other {count(missing) / 1e6:.0f} MB, next try in "
                f"{ASK_AGAIN_S:.0f} s"
            )
            if not await members.more(ASK_AGAIN_S):
                waited_s += ASK_AGAIN_S

    async def _finish(self, landing: Landing, wanted: Mapping[str, Ranges], members: Members | None) -> None:
        """Whole files get their names. A wrong one, of which members gave a part, is fetched again without them."""
        for file in self._source.weight_files:
            if file.name not in wanted:
                continue
            given = members.gave(file.name) if members is not None and self._store.is_unnamed(file.name) else []
            if members is not None and given and await asyncio.to_thread(self._store.differs, file.name, file.sha256):
                sentence = f"{file.name} is not what the model host announced: what members gave of it is fetched there"
                await asyncio.to_thread(members.distrust, landing, given, sentence)
            else:
                await asyncio.to_thread(self._store.finish, file.name, file.sha256)

    def _check_room(self, needed_bytes: int) -> None:
        free_bytes = shutil.disk_usage(self._store.folder).free
        if needed_bytes > free_bytes:
            raise Refused(
                f"{self._source.model} needs {needed_bytes / 1e9:.1f} GB more at {self._store.folder}, "
                f"where {free_bytes / 1e9:.1f} GB are free: make room there"
            )


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
