"""The model host's HTTP interface, as the Hugging Face Hub speaks it: what a repository holds, files, byte ranges.

The token goes to the endpoint alone: a redirect to another origin travels without it.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from kafila_sidecar.errors import Denied, KafilaError, NotFound, TimedOut, Unavailable

log = logging.getLogger(__name__)

CONNECT_S = 6.0
SILENCE_S = 30.0
"""The longest wait for the next byte of an answer."""
SMALL_FILE_S = 60.0
"""The longest that a description or a small file may take as a whole."""
SMALL_FILE_TRIES = 3
RETRY_WAIT_S = 0.5
MAX_SMALL_BYTES = 64 << 20
MAX_REDIRECTS = 5
PASSING = {408, 425, 429, 500, 502, 503, 504}
"""Statuses that another try may cure."""


class Passing(Unavailable):
    """A failure that another try may cure, after `after_s` if the host said so."""

    def __init__(self, sentence: str, after_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class FilePlace:
    """One file of a repository at a commit."""

    repo: str
    revision: str
    file: str


class Hub:
    """One model host. An async context manager, which may be entered again later: connections live as long as it."""

    def __init__(self, *, endpoint: str, token: str | None) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._own_headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def __aenter__(self) -> Self:
        self._client = httpx2.AsyncClient(
            follow_redirects=True,
            max_redirects=MAX_REDIRECTS,
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S, pool=None),
            headers={"Accept-Encoding": "identity", "User-Agent": "kafila"},
            verify=trusted_roots(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def info(self, repo: str, revision: str) -> dict[str, Any]:
        """The Hub's description of a repository: `sha`, `siblings` with sizes and, for large files, digests."""
        url = f"{self.endpoint}/api/models/{quote(repo)}/revision/{quote(revision, safe='')}?blobs=true"
        body = await self._whole(url, f"the model {repo}")
        try:
            described = json.loads(body)
        except ValueError:
            described = None
        match described:
            case {"sha": str(), "siblings": list()}:
                return dict(described)
        raise Unavailable(f"{self.endpoint} does not answer like a model host: check HF_ENDPOINT")

    async def small_file(self, place: FilePlace) -> bytes:
        """Raises NotFound, Denied, Unavailable or TimedOut; Unavailable too for a file over 64 MiB."""
        return await self._whole(self._url(place), f"{place.file} of {place.repo}")

    @asynccontextmanager
    async def span(self, place: FilePlace, start: int, end: int, etag: str | None) -> AsyncIterator[httpx2.Response]:
        """The answer to a request for bytes `[start, end)`, its body unread; any status below 400.

        With a strong `etag` the host is asked for the range only if the file is still the same. Raises Passing where
        another try may help.
        """
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if etag is not None and etag.startswith('"'):
            headers["If-Range"] = etag
        async with self._stream(self._url(place), f"{place.file} of {place.repo}", headers) as response:
            yield response

    def _url(self, place: FilePlace) -> str:
        return f"{self.endpoint}/{quote(place.repo)}/resolve/{place.revision}/{quote(place.file)}"

    async def _whole(self, url: str, what: str) -> bytes:
        try:
            async with asyncio.timeout(SMALL_FILE_S):
                for _ in range(SMALL_FILE_TRIES - 1):
                    try:
                        return await self._body(url, what)
                    except Passing as error:
                        await asyncio.sleep(max(error.after_s, RETRY_WAIT_S))
                return await self._body(url, what)
        except TimeoutError:
            raise TimedOut(f"{self.endpoint} took more than {SMALL_FILE_S:.0f} s for {what}: try again") from None

    async def _body(self, url: str, what: str) -> bytes:
        body = bytearray()
        async with self._stream(url, what, {}) as response:
            async for data in response.aiter_bytes():
                body += data
                if len(body) > MAX_SMALL_BYTES:
                    raise Unavailable(f"{self.endpoint} sent more than {MAX_SMALL_BYTES} bytes for {what}")
        return bytes(body)

    @asynccontextmanager
    async def _stream(self, url: str, what: str, headers: dict[str, str]) -> AsyncIterator[httpx2.Response]:
        try:
            async with self._client.stream("GET", url, headers=self._own_headers | headers) as response:
                if response.status_code >= 400:
                    raise self._refusal(response, what)
                if response.url.scheme != "https" and self.endpoint.startswith("https:"):
                    raise Unavailable(f"{self.endpoint} redirects {what} to an unencrypted address: refused")
                yield response
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Passing(f"the model host {self.endpoint} can't be reached for {what}: {reason}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unavailable(f"the model host {self.endpoint} failed for {what}: {error}") from None

    def _refusal(self, response: httpx2.Response, what: str) -> KafilaError:
        status, code = response.status_code, response.headers.get("X-Error-Code")
        elsewhere = httpx2.URL(self.endpoint).host != response.url.host
        if status in PASSING or (elsewhere and status == 403):  # a signed address that has expired
            return Passing(f"{self.endpoint} answered {status} for {what}: try again later", retry_after_s(response))
        if code == "GatedRepo" or status == 403:
            return Denied(
                f"{what} is gated at {self.endpoint}: accept its terms on its page there, then set HF_TOKEN "
                "to a token of an account that may read it"
            )
        if status == 401 and self._own_headers:
            return Denied(f"{self.endpoint} does not accept HF_TOKEN for {what}: check the token")
        if status == 401:
            return NotFound(f"{self.endpoint} shows nobody {what}: check the name, or set HF_TOKEN if it is private")
        if status == 404:
            return NotFound(f"{self.endpoint} has no {what.removeprefix('the ')}: check the name")
        return Unavailable(f"{self.endpoint} answered {status} for {what}")


@cache
def trusted_roots() -> ssl.SSLContext:
    """Read once: it takes a tenth of a second."""
    return httpx2.create_ssl_context(trust_env=False)


def retry_after_s(response: httpx2.Response) -> float:
    """Seconds from a Retry-After header, at most a minute; 0 without one (its date form isn't used by model hosts)."""
    value = response.headers.get("Retry-After", "")
    return min(float(value), 60.0) if value.isascii() and value.isdigit() else 0.0
