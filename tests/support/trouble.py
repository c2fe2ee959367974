"""What befalls machines, and what the readers of their answers see of it."""

import json
import os
import signal
import threading
import time
import urllib.error
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any, NamedTuple

from tests.support.cluster import ClusterMember

READER_DEADLINE_S = 240.0  # without a byte
BUSY_S = 0.02  # how often it is looked whether readers have come so far


class Pause(NamedTuple):
    """Between two pieces of an answer, on `time.monotonic`."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Reader(threading.Thread):
    """Reads one greedy answer, and keeps when each piece came, and what ended it."""

    def __init__(self, member: ClusterMember, model: str, prompt: str, tokens: int) -> None:
        super().__init__(daemon=True)
        self.member, self.prompt = member, prompt
        self._body = {"model": model, "prompt": prompt, "raw": True}
        self._body["options"] = {"temperature": 0, "num_predict": tokens, "stop": ["never said"]}
        self._pieces: list[str] = []
        self._times: list[float] = []
        self.error = ""

    def run(self) -> None:
        self._times.append(time.monotonic())
        try:
            is_done = False
            for line in self.member.lines("/api/generate", self._body, timeout_s=READER_DEADLINE_S):
                self._times.append(time.monotonic())
                self._pieces.append(line.get("response", ""))
                self.error = line.get("error", "")
                is_done = line.get("done", False)
            self.error = self.error or ("" if is_done else "the answer ended without a word")
        except (OSError, ValueError, HTTPException) as error:
            self.error = _sentence(error)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def count(self) -> int:
        """How many pieces came."""
        return len(self._pieces)

    @property
    def longest_pause(self) -> Pause:
        """The longest wait for a piece, the first one not counted."""
        times = self._times[1:]
        return max(map(Pause, times, times[1:]), key=lambda pause: pause.seconds, default=Pause(0.0, 0.0))


def read_at(members: Iterable[ClusterMember], prompts: Sequence[str], model: str, tokens: int) -> list[Reader]:
    """A reader at each member, with prompts in turn; each waits for its first piece."""
    readers = [Reader(member, model, prompts[i % len(prompts)], tokens) for i, member in enumerate(members)]
    for reader in readers:
        reader.start()
    return readers


def until_read(readers: Collection[Reader], pieces: int, deadline_s: float = 60.0) -> None:
    """Each has read so much, or all of its answer."""
    deadline = time.monotonic() + deadline_s
    while any(reader.is_alive() and reader.count < pieces for reader in readers):
        if time.monotonic() > deadline:
            raise AssertionError(f"answers did not come so far: {[(one.count, one.error) for one in readers]}")
        time.sleep(BUSY_S)


def _sentence(error: Exception) -> str:
    if not isinstance(error, urllib.error.HTTPError):
        return f"connection: {error or type(error).__name__}"
    with error:
        said = error.read().decode(errors="replace")
    with suppress(ValueError, AttributeError):
        said = json.loads(said).get("error", said)
    return f"HTTP {error.code}: {said}"


# ---- What befalls machines


@contextmanager
def standing_still(member: ClusterMember) -> Iterator[None]:
    """All its processes are stopped meanwhile, as on a laptop that sleeps."""
    pids = member.pids()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


# ---- Who is who


class Cast(NamedTuple):
    """Names of members by what they do in the session: `stage` is one that is neither host nor head, where there is
    one; `other`, nobody of these."""

    host: str
    head: str
    stage: str
    others: tuple[str, ...]


def cast(session: Mapping[str, Any]) -> Cast:
    """Who plays which part in a session that is ready."""
    host, order = session["host"], [stage["member"] for stage in session["stages"]]
    plain = [name for name in order[1:] if name != host]
    stage = (plain or order)[-1]
    others = [one["name"] for one in session["members"] if one["name"] not in (host, order[0], stage)]
    return Cast(host, order[0], stage, tuple(others))


def are_all_ready(members: Iterable[ClusterMember]) -> bool:
    """Each sees a ready session in which all of them are present."""
    members = list(members)
    return all(presence(member) == {one.name for one in members} for member in members)


def presence(member: ClusterMember) -> set[str]:
    """Who is present in the session that is ready, as this member sees it."""
    try:
        session = member.session()
    except (OSError, HTTPException):
        return set()
    if session.get("state") != "ready":
        return set()
    return {one["name"] for one in session["members"] if one["present"]}
