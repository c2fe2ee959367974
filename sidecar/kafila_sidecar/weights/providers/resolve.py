"""From what a person calls a model to its Source: asks the Hub, fetches the small files, or reads a local folder."""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import InvalidInput, KafilaError, NotFound, TimedOut, Unavailable
from kafila_sidecar.small_files import CONFIG, read_bytes, small_files_of
from kafila_sidecar.weights.providers.folder import folder_source
from kafila_sidecar.weights.providers.hub import REPO, FilePlace, Hub
from kafila_sidecar.weights.providers.hub_cache import HubCache
from kafila_sidecar.weights.providers.names import alike, is_short, known_as
from kafila_sidecar.weights.providers.source import Source, WeightFile, put, read_config, weight_files
from kafila_sidecar.weights.tasks import tasks

log = logging.getLogger(__name__)

COMMIT = re.compile(r"[0-9a-f]{40,64}")
MOST_SUGGESTIONS = 3
RECORD = "source.json"
"""In a revision's folder: what the repository lists. Written when the small files are complete."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at a commit: sizes in bytes and, for large files, SHA-256, by file name."""

    revision: str
    sizes: Mapping[str, int | None]
    digests: Mapping[str, str]


async def resolve(
    model: str, *, hub: Hub, cache: Path, revision: str | None = None, hub_cache: Path | None = None
) -> Source:
    """The Source of `model`: a Hub repository id, or the absolute path of a folder.

    Small files go to `cache`/REPO/COMMIT, unless `hub_cache` (what HF_HUB_CACHE names) has them. `revision` asks for
    exactly that one; else it is the newest. Raises InvalidInput, NotFound, Denied, Refused, Unavailable, TimedOut.
    """
    if model.startswith("/"):
        return await asyncio.to_thread(folder_source, model, revision)
    if named := known_as(model):
        model = named.repo
    if is_short(model):
        raise InvalidInput(f"{model[:80]!r} is not in the list of short names{meant(alike(model))}")
    if not REPO.fullmatch(model) or not (revision is None or COMMIT.fullmatch(revision)):
        raise InvalidInput(f"{model[:200]!r} is no model: give a repository id like org/name, or an absolute path")
    known = None if revision is None else recorded(cache / model / revision)
    shelf = HubCache(hub_cache)
    if known is not None:
        return source_of(model, known, cache, shelf, small_bytes=0)
    with hub:
        listing = await found(hub, model, revision, shelf)
        small_bytes = await fetch_small(hub, model, listing, cache / model / listing.revision, shelf)
    return source_of(model, listing, cache, shelf, small_bytes)


async def found(hub: Hub, repo: str, revision: str | None, shelf: HubCache) -> Listing:
    """As `listed`; a name that nobody has is looked for at the Hub, which may know better ones."""
    try:
        return await listed(hub, repo, revision, shelf)
    except NotFound as error:
        others: list[str] = []
        with contextlib.suppress(KafilaError):
            others = await hub.search(repo.rpartition("/")[2], MOST_SUGGESTIONS)
        if not others:
            raise
        raise NotFound(f"{error}{meant(others)}") from None


def meant(names: Iterable[str]) -> str:
    """The end of a sentence about a name that nobody has."""
    shown = ", ".join(names)
    return f"; did you mean {shown}?" if shown else ": `ollama session models` shows it"


async def listed(hub: Hub, repo: str, revision: str | None, shelf: HubCache) -> Listing:
    """What the Hub lists; if it can't be reached, what its library's cache has."""
    try:
        return listing_of(await hub.info(repo, revision or "main"))
    except (Unavailable, TimedOut):
        at = revision or shelf.revision(repo) or ""
        files = shelf.files(repo, at)
        if not COMMIT.fullmatch(at) or CONFIG not in files:
            raise
        log.info("hub_unreachable repo=%s using=cache revision=%s", repo, at)
        return Listing(at, {name: path.stat().st_size for name, path in files.items()}, {})


def listing_of(info: Mapping[str, Any]) -> Listing:
    sizes: dict[str, int | None] = {}
    digests: dict[str, str] = {}
    for sibling in info["siblings"]:
        match sibling:
            case {"rfilename": str(name), **rest} if "/" not in name or small_files_of([name]):
                size: Any = rest.get("size")
                sizes[name] = size if type(size) is int else None
                match rest.get("lfs"):
                    case {"sha256": str(digest)}:
                        digests[name] = digest
    if not COMMIT.fullmatch(info["sha"]):
        raise Unavailable("the model host names no commit: check HF_ENDPOINT")
    return Listing(info["sha"], sizes, digests)


async def fetch_small(hub: Hub, repo: str, listing: Listing, folder: Path, shelf: HubCache) -> int:
    """Brings the small files into `folder`; bytes that came over the network."""
    cached = shelf.files(repo, listing.revision)

    async def bring(name: str) -> int:
        if name in cached:
            await asyncio.to_thread(put, folder / name, read_bytes(repo, cached[name]))
            return 0
        content = await hub.small_file(FilePlace(repo, listing.revision, name))
        await asyncio.to_thread(put, folder / name, content)
        return len(content)

    async with tasks() as group:
        running = [group.create_task(bring(name)) for name in small_files_of(listing.sizes)]
    await asyncio.to_thread(put, folder / RECORD, json.dumps(asdict(listing)).encode())
    return sum(task.result() for task in running)


def recorded(folder: Path) -> Listing | None:
    try:
        return Listing(**json.loads((folder / RECORD).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def source_of(model: str, listing: Listing, cache: Path, shelf: HubCache, small_bytes: int) -> Source:
    folder = cache / model / listing.revision
    config = read_config(model, folder)
    chosen = weight_files(model, folder, listing.sizes)
    cached = shelf.files(model, listing.revision)
    here = (name for name in chosen.names if name in cached)
    whole = {name: cached[name] for name in here if fits(cached[name], listing.sizes.get(name))}
    files = tuple(WeightFile(name, listing.sizes.get(name), listing.digests.get(name)) for name in chosen.names)
    return Source(
        model, listing.revision, config, folder, small_bytes, folder, files, whole, tensor_files=chosen.tensors
    )


def fits(path: Path, size_bytes: int | None) -> bool:
    return size_bytes is None or path.stat().st_size == size_bytes
