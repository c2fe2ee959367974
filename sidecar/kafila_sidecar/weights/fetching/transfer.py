"""One byte range over HTTP: checked against what was asked for, tried again from where it stopped. Blocks."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import requests

from kafila_sidecar.errors import Refused, Unavailable
from kafila_sidecar.weights.providers.http import Passing
from kafila_sidecar.weights.providers.hub import FilePlace, Hub, arriving
from kafila_sidecar.weights.threads import Stop

log = logging.getLogger(__name__)

CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class Changed(Refused):
    """A file at the model host is not what it was when its download began."""

    def __init__(self, place: FilePlace) -> None:
        super().__init__(
            f"{place.file} of {place.repo} changed at the model host after its download began: start again"
        )
        self.file = place.file


class WrongAnswer(Passing):
    """The host answers something else than was asked for."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a source that is away is waited for without a byte of progress: `longest_s` of waits in all, each twice
    the one before. One that answers something else is asked `tries` times."""

    tries: int = 6
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    longest_s: float = 600.0

    def wait_s(self, failures: int, asked_for_s: float) -> float:
        """Before the next try after so many failures; the host may ask for more."""
        return max(asked_for_s, min(self.first_wait_s * 2.0 ** (failures - 1), self.longest_wait_s))


@dataclass(frozen=True, slots=True)
class Known:
    """What the host has said of a file: its length in bytes, and a tag of its content (RFC 9110, section 8.8.3)."""

    size_bytes: int
    etag: str | None


@dataclass(slots=True)
class Download:
    """Bytes `[at, end)` of a file that are still to come; `known` is filled in by the first answer."""

    place: FilePlace
    known: Known | None
    at: int
    end: int
    conditional: bool = True  # whether to ask with If-Range


Keep = Callable[[bytes], None]
"""Takes the bytes at `Download.at`, before `at` moves on."""

Settle = Callable[[], None]
"""Called at the end of each request: what was kept so far should last."""


Waits = Callable[[str], None]
"""Told in a sentence what is waited for, and when it is tried again."""


def transfer(
    hub: Hub, download: Download, keep: Keep, settle: Settle, waits: Waits, patience: Patience, stop: Stop
) -> None:
    """Hands the bytes of `download` to `keep` in their order; `download.at` tells how far it came, whatever happens.

    Raises Changed, Denied, NotFound, Unavailable when patience is at its end, or Stopped.
    """
    failures, waited_s = 0, 0.0
    while download.at < download.end:
        began = download.at
        try:
            attempt(hub, download, keep, settle, stop)
        except Passing as error:
            if download.at > began:
                failures, waited_s = 0, 0.0
            failures += 1
            wait_s = patience.wait_s(failures, error.after_s)
            if waited_s + wait_s > patience.longest_s or (
                isinstance(error, WrongAnswer) and failures >= patience.tries
            ):
                raise
            waited_s += wait_s
            log.info("fetch_retry file=%s at=%d wait_s=%.1f", download.place.file, download.at, wait_s)
            waits(f"{error.short}, next try in {max(wait_s, 1):.0f} s")
            stop.sleep(wait_s)


def attempt(hub: Hub, download: Download, keep: Keep, settle: Settle, stop: Stop) -> None:
    place = download.place
    etag = download.known.etag if download.known and download.conditional else None
    with hub.span(place, download.at, download.end, etag, stop) as response:
        download.known = checked(response, download)
        try:
            receive(response, download, keep, stop)
        finally:
            settle()
    if download.at < download.end:
        raise Passing(f"the model host stopped at byte {download.at} of {place.file}")


def receive(response: requests.Response, download: Download, keep: Keep, stop: Stop) -> None:
    for data in arriving(response):
        stop.check()
        if len(data) > download.end - download.at:
            raise WrongAnswer(f"the model host sends more of {download.place.file} than was asked for")
        keep(data)
        download.at += len(data)


def checked(response: requests.Response, download: Download) -> Known:
    """What the answer says of the file. Raises unless it carries exactly the bytes asked for, of the file we know."""
    place, etag = download.place, tag_of(response)
    if response.status_code == 200:
        check_same(download, Known(int(response.headers.get("Content-Length", -1)), etag))
        download.conditional = False  # the host may have taken our tag for an old one
        raise WrongAnswer(f"the model host answers with the whole of {place.file} where a byte range was asked for")
    found = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code != 206 or found is None or "Content-Encoding" in response.headers:
        raise Unavailable(f"the model host does not serve byte ranges of {place.file}: choose another host")
    first, last, size_bytes = map(int, found.groups())
    answer = Known(size_bytes, etag)
    check_same(download, answer)
    if size_bytes < download.end:
        raise Refused(f"{place.file} of {place.repo} has only {size_bytes} bytes: it is no whole safetensors file")
    if (first, last + 1) != (download.at, download.end):
        raise WrongAnswer(f"the model host answers with {first}-{last} of {place.file} instead of those asked for")
    return answer


def tag_of(response: requests.Response) -> str | None:
    """The tag of the content. Where the Hub redirects, its own, since hosts of large files come and go."""
    for hop in response.history:
        if "X-Linked-ETag" in hop.headers:
            return f"linked {hop.headers['X-Linked-ETag']}"  # no ETag of the answer itself: not for If-Range
    return response.headers.get("ETag")


def check_same(download: Download, answer: Known) -> None:
    known = download.known
    if known is None:
        return
    retagged = None not in (known.etag, answer.etag) and known.etag != answer.etag
    if retagged or answer.size_bytes not in (known.size_bytes, -1):
        raise Changed(download.place)
