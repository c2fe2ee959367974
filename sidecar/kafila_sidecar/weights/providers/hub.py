"""The model host's HTTP interface, as the Hugging Face Hub speaks it: what a repository holds, files, byte ranges."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import requests

from kafila_sidecar.errors import Denied, KafilaError, NotFound, TimedOut, Unavailable
from kafila_sidecar.small_files import MOST_SMALL_BYTES
from kafila_sidecar.weights.providers.http import HostSession, Passing
from kafila_sidecar.weights.threads import Stop, in_thread

log = logging.getLogger(__name__)

SMALL_FILE_S = 60.0
"""The longest that a description or a small file may take as a whole."""
SMALL_FILE_TRIES = 3
RETRY_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
"""That a host may ask for before another try."""
READ_BYTES = 1 << 18
"""At most, at once."""
REPO = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
"""A repository's id."""
PASSING = {408, 425, 429, 500, 502, 503, 504}
"""Statuses that another try may cure."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """One file of a repository at a commit."""

    repo: str
    revision: str
    file: str


class Hub:
    """One model host, or none where that is wanted. A context manager, whose end closes idle connections."""

    def __init__(
        self,
        *,
        endpoint: str,
        token: str | None = None,
        certificates: Path | None = None,
        offline: bool = False,
        small_file_s: float = SMALL_FILE_S,
        retry_wait_s: float = RETRY_WAIT_S,
    ) -> None:
        """`certificates`: roots in place of the usual ones. `offline`: every question is Unavailable at once."""
        self.endpoint = endpoint.rstrip("/")
        self._has_token = token is not None
        self._offline = offline
        self._small_file_s = small_file_s
        self._retry_wait_s = retry_wait_s
        self._session = HostSession(endpoint=self.endpoint, token=token, certificates=certificates)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.close()

    async def info(self, repo: str, revision: str) -> dict[str, Any]:
        """The Hub's description of a repository: `sha`, `siblings` with sizes and, for large files, digests."""
        url = f"{self.endpoint}/api/models/{quote(repo)}/revision/{quote(revision, safe='')}?blobs=true"
        body = await self._whole(url, f"the model {repo}")
        try:
            described = json.loads(body)
        except (ValueError, RecursionError):
            described = None
        match described:
            case {"sha": str(), "siblings": list()}:
                return dict(described)
        raise Unavailable(f"{self.endpoint} does not answer like a model host: check HF_ENDPOINT")

    async def search(self, words: str, most: int) -> list[str]:
        """Ids of repositories with safetensors weights whose names go with `words`, the most used first."""
        asked = urlencode({"search": words, "filter": "safetensors", "sort": "downloads", "limit": most})
        body = await self._whole(f"{self.endpoint}/api/models?{asked}", f"models called {words}")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        entries = found if isinstance(found, list) else []
        ids = [entry.get("id") for entry in entries[:most] if isinstance(entry, dict)]
        return [name for name in ids if isinstance(name, str) and REPO.fullmatch(name)]

    async def small_file(self, place: FilePlace) -> bytes:
        """Raises NotFound, Denied, Unavailable or TimedOut; Unavailable too for a file over 64 MiB."""
        return await self._whole(self._url(place), f"{place.file} of {place.repo}")

    @contextmanager
    def span(self, place: FilePlace, start: int, end: int, etag: str | None, stop: Stop) -> Iterator[requests.Response]:
        """The answer to a request for bytes `[start, end)`, its body unread; any status below 400. Blocks.

        With a strong `etag` the host is asked for the range only if the file is still the same. Raises Passing where
        another try may help.
        """
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if etag is not None and etag.startswith('"'):
            headers["If-Range"] = etag
        with self._answer(self._url(place), f"{place.file} of {place.repo}", headers, stop) as response:
            yield response

    def _url(self, place: FilePlace) -> str:
        return f"{self.endpoint}/{quote(place.repo)}/resolve/{place.revision}/{quote(place.file)}"

    async def _whole(self, url: str, what: str) -> bytes:
        try:
            async with asyncio.timeout(self._small_file_s):
                return await in_thread(lambda stop: self._tried(url, what, stop))
        except TimeoutError:
            raise TimedOut(f"{self.endpoint} took more than {self._small_file_s:.0f} s for {what}: try again") from None

    def _tried(self, url: str, what: str, stop: Stop) -> bytes:
        for _ in range(SMALL_FILE_TRIES - 1):
            try:
                return self._body(url, what, stop)
            except Passing as error:
                stop.sleep(max(error.after_s, self._retry_wait_s))
        return self._body(url, what, stop)

    def _body(self, url: str, what: str, stop: Stop) -> bytes:
        body = bytearray()
        with self._answer(url, what, {}, stop) as response:
            for data in arriving(response):
                body += data
                if len(body) > MOST_SMALL_BYTES:
                    raise Unavailable(f"{self.endpoint} sent more than {MOST_SMALL_BYTES} bytes for {what}")
            announced = response.headers.get("Content-Length", "")
        if announced.isascii() and announced.isdigit() and int(announced) != len(body):
            raise Passing(f"{self.endpoint} stopped in the middle of {what}")
        return bytes(body)

    @contextmanager
    def _answer(self, url: str, what: str, headers: dict[str, str], stop: Stop) -> Iterator[requests.Response]:
        if self._offline:
            raise Unavailable(f"{what} is not on this machine, and HF_HUB_OFFLINE keeps it from being fetched")
        with self._session.answer(url, what, headers, stop) as response:
            if response.status_code >= 400:
                raise self._refusal(response, what)
            yield response

    def _refusal(self, response: requests.Response, what: str) -> KafilaError:
        status, code = response.status_code, response.headers.get("X-Error-Code")
        elsewhere = urlsplit(self.endpoint).hostname != urlsplit(response.url).hostname
        if status == 407:
            return Unavailable("the proxy wants a name and password: put them into HTTPS_PROXY")
        if status in PASSING or (elsewhere and status == 403):  # a signed address that has expired
            return Passing(
                f"{self.endpoint} answered {status} for {what}: try again later",
                retry_after_s(response),
                short=f"the model host answers {status}",
            )
        if code == "GatedRepo" or status == 403:
            return Denied(
                f"{what} is gated at {self.endpoint}: accept its terms on its page there, then set HF_TOKEN "
                "to a token of an account that may read it"
            )
        if status == 401 and self._has_token:
            return Denied(f"{self.endpoint} does not accept HF_TOKEN for {what}: check the token")
        if status == 401:
            return NotFound(f"{self.endpoint} shows nobody {what}: check the name, or set HF_TOKEN if it is private")
        if status == 404:
            return NotFound(f"{self.endpoint} has no {what.removeprefix('the ')}: check the name")
        return Unavailable(f"{self.endpoint} answered {status} for {what}")


def arriving(response: requests.Response) -> Iterator[bytes]:
    """The body's bytes as they come, unchanged, none of them held back until more are there."""
    while data := response.raw.read1(READ_BYTES, decode_content=False):
        yield data


def retry_after_s(response: requests.Response) -> float:
    """Seconds from a Retry-After header, bounded; 0 without one (its date form isn't used by model hosts)."""
    value = response.headers.get("Retry-After", "")
    return min(float(value), LONGEST_WAIT_S) if value.isascii() and value.isdigit() else 0.0
