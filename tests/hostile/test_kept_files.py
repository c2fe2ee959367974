"""Every file that is kept in a home, cut short at each byte, with each byte changed, and full of anything: it is a
value, or passed over, or refused in words. No other error comes of it.

What lies in a home docs/guide/upkeep.md names, which tests/e2e/test_documented_sessions.py compares with what does.
Files that Go reads, and those of which more is asked than this, are named with their test.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafila_sidecar.config import Config
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.machine.home import held
from kafila_sidecar.runtime.probe.cost import Cost
from kafila_sidecar.runtime.probe.kept import CostStore
from kafila_sidecar.serving.trace import TraceFile
from kafila_sidecar.session.admission.guesses import FileGuesses
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.sharing.rates import Rates
from kafila_sidecar.weights.format.ranges import Ranges, Span
from kafila_sidecar.weights.store.library import Library, in_use
from kafila_sidecar.weights.store.store import JOURNAL, Store
from kafila_sidecar.weights.store.verify import damaged

ROOT = Path(__file__).parents[2]
WEIGHTS = "model.safetensors"
COST = Cost("cpu", "float32", 1000, {1: 0.001}, 1e-05, {1: 0.002}, 1e10, 0.1, {32: 0.02})
ANYTHING = (
    *(b"\x00", b"\xff\xfe", b"{}\n", b"[]\n", b"null\n", b"NaN\n", b"-1", b"9" * 400, b"9" * 5000),
    *(b"[" * 200_000, b'{"at": ' + b"9" * 400 + b', "lasts_s": 1, "cost": {}}'),
    *(b'{"load_bytes_per_s": ' + b"9" * 400 + b"}", b'{"fetch_bytes_per_s": NaN, "load_bytes_per_s": true}'),
    *(b'{"file": "model.safetensors", "size": -1, "etag": null}\n', b'{"file": "../x", "size": 1, "etag": null}\n'),
)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """`file` below the home, what writes it, and what a start reads of it."""

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


def write_address(home: Path) -> None:
    (home / "rendezvous.address").write_text("192.0.2.1:7000#abcdefghijklmnopqrstuvwxyz\n")


def read_address(home: Path) -> object:
    return parse_address(Config.read({}, socket_path=home / "socket", data=home).meeting_place())


def write_rates(home: Path) -> None:
    async def fetched() -> None:
        missing = iter((1 << 30, 0))
        with Rates(home / "measurements" / "rates-a.json").fetching(lambda: next(missing)):
            await asyncio.sleep(0.001)

    asyncio.run(fetched())


def read_rates(home: Path) -> object:
    rates = Rates(home / "measurements" / "rates-a.json")
    return rates.fetch_bytes_per_s, rates.load_bytes_per_s


def trace(home: Path) -> None:
    TraceFile(home / "traces" / "one.jsonl").append({"request": "1"})


def owned(home: Path) -> None:
    async def hold() -> None:
        async with held(home):
            await asyncio.sleep(0)

    asyncio.run(hold())


def weights(home: Path) -> Path:
    return home / "models" / "org" / "name" / "a1"


def write_weights(home: Path) -> None:
    """Spares lie like any others: part of a file, with what is noted of it."""
    store = Store(weights(home))
    with in_use(weights(home)), store.writing():
        store.begin(WEIGHTS, 100, '"tag"')
        for start, end in ((0, 10), (20, 60)):
            writer = store.writer(WEIGHTS, start)
            writer.write(bytes(range(start, end)))
            writer.settle()


def read_weights(home: Path) -> object:
    """As a session does that begins: what there is, what is damaged of it, and more of it fetched."""
    models = Library(home / "models", limit_bytes=1 << 30).models()
    store = Store(weights(home))
    with in_use(weights(home)), store.writing():
        damaged(store, {WEIGHTS: Ranges([Span(0, 60)])})
        return models, store.missing({WEIGHTS: Ranges([Span(0, 60)])})


KEPT = {
    one.file: one
    for one in (
        KeptFile("owner", owned, owned),
        KeptFile("rendezvous.address", write_address, read_address),
        KeptFile(
            "measurements/probe-a.json",
            lambda home: CostStore(home / "measurements").keep("probe-a", COST),
            lambda home: CostStore(home / "measurements").load("probe-a"),
        ),
        KeptFile("measurements/rates-a.json", write_rates, read_rates),
        KeptFile("traces/one.jsonl", trace, trace),
        KeptFile(
            "sessions/a/guesses",
            lambda home: FileGuesses(home / "sessions" / "a").save(15),
            lambda home: FileGuesses(home / "sessions" / "a").load(),
        ),
        KeptFile(f"models/org/name/a1/{JOURNAL}", write_weights, read_weights),
        KeptFile(f"models/org/name/a1/{WEIGHTS}.partial", write_weights, read_weights),
        KeptFile("models/org/name/a1/use", write_weights, read_weights),
    )
}
ELSEWHERE = {
    "token": "ollama/internal/home/token_test.go",
    "logs": "ollama/internal/logbook/logbook_test.go",
    "rendezvous": "tests/hostile/test_files_cut_short.py",
    "udp_port": "tests/sidecar/machine/test_socket_place.py",
    "sessions": "tests/sidecar/session/keeping/test_keeping.py",
}


def spoilt(whole: bytes) -> Iterator[bytes]:
    """Cut at each byte; each byte with its lowest bit changed, which makes another digit of one; no text at all."""
    yield from (whole[:length] for length in range(len(whole)))
    yield from (whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :] for at, byte in enumerate(whole))
    yield b"\xff" + whole[1:]


def named() -> set[str]:
    """What docs/guide/upkeep.md says lies in a home."""
    page = (ROOT / "docs" / "guide" / "upkeep.md").read_text(encoding="utf-8")
    return set(re.findall(r"`~/\.kafila/([a-z_.]+)`", page))


def test_kept_file_when_the_page_on_upkeep_names_it_then_something_here_cuts_it() -> None:
    assert named() | {"models"} == {file.split("/")[0] for file in KEPT} | set(ELSEWHERE)
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())


@pytest.mark.parametrize("one", KEPT.values(), ids=KEPT)
def test_kept_file_when_it_is_cut_or_changed_at_any_byte_then_no_error_but_a_sentence(
    one: KeptFile, tmp_path: Path
) -> None:
    one.write(tmp_path)
    path = tmp_path / one.file
    whole = path.read_bytes()
    for data in (*spoilt(whole), *ANYTHING):
        path.write_bytes(data)
        with suppress(KafilaError):
            one.read(tmp_path)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("one", KEPT.values(), ids=KEPT)
def test_kept_file_when_it_was_spoilt_then_it_is_written_and_read_again(one: KeptFile, tmp_path: Path) -> None:
    one.write(tmp_path)
    whole = one.read(tmp_path)
    path = tmp_path / one.file
    path.write_bytes(path.read_bytes()[:-2])
    with suppress(KafilaError):
        one.read(tmp_path)
    one.write(tmp_path)
    assert type(one.read(tmp_path)) is type(whole)
