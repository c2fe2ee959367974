"""Every file that is kept in a home, cut short at each byte, with each byte changed, and full of anything: it is passed
over, or refused in words, and no other error comes of it. Cut short it says what it said, or less, and nothing else.

What lies in a home docs/guide/upkeep.md names, which tests/e2e/test_documented_sessions.py compares with what does; and
each module that writes a file stands here. Files that Go reads, and those of which more is asked than this, are named
with their test.
"""

import asyncio
import re
from collections.abc import Callable, Hashable, Iterator
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
from kafila_sidecar.small_files import CONFIG, read_json
from kafila_sidecar.weights.format.ranges import Ranges, Span
from kafila_sidecar.weights.providers.source import put
from kafila_sidecar.weights.store.library import Library, in_use
from kafila_sidecar.weights.store.store import JOURNAL, PARTIAL, Store
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


Facts = frozenset[Hashable]
"""What a start knows by a file, each thing by itself; nothing where there is no such file."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """`file` below the home, what writes it, and what a start knows by it. Raises KafilaError where it is refused."""

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], Facts]


def write_address(home: Path) -> None:
    (home / "rendezvous.address").write_text("192.0.2.1:7000#abcdefghijklmnopqrstuvwxyz\n")


def read_address(home: Path) -> Facts:
    said = Config.read({}, socket_path=home / "socket", data=home).meeting_place()
    return frozenset({parse_address(said)} if said else ())


def write_rates(home: Path) -> None:
    async def fetched() -> None:
        missing = iter((1 << 30, 0))
        with Rates(home / "measurements" / "rates-a.json").fetching(lambda: next(missing)):
            await asyncio.sleep(0.001)

    asyncio.run(fetched())


def read_rates(home: Path) -> Facts:
    rates = Rates(home / "measurements" / "rates-a.json")
    return frozenset(("fetch", rates.fetch_bytes_per_s) if rates.fetch_bytes_per_s else ())


def read_cost(home: Path) -> Facts:
    cost = CostStore(home / "measurements").load("probe-a")
    return frozenset(() if cost is None else {str(cost)})


def read_guesses(home: Path) -> Facts:
    return frozenset(filter(None, (FileGuesses(home / "sessions" / "a").load(),)))


def trace(home: Path) -> Facts:
    """Nobody reads it but people; the next record is put behind whatever is there."""
    TraceFile(home / "traces" / "one.jsonl").append({"request": "1"})
    return frozenset()


def owned(home: Path) -> Facts:
    """Who holds the lock writes it anew."""

    async def hold() -> None:
        async with held(home):
            await asyncio.sleep(0)

    asyncio.run(hold())
    return frozenset()


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


def read_weights(home: Path) -> Facts:
    """As a session does that begins: which bytes are there, without those that turn out to be damaged."""
    Library(home / "models", limit_bytes=1 << 30).models()
    store = Store(weights(home))
    with in_use(weights(home)), store.writing():
        damaged(store, {WEIGHTS: Ranges([Span(0, 60)])})
        known = store.held(WEIGHTS)
        return frozenset() if known is None else frozenset(at for span in known.ranges for at in range(*span))


def write_config(home: Path) -> None:
    put(home / CONFIG_FILE, b'{"model_type": "llama", "num_hidden_layers": 12}')


def read_config(home: Path) -> Facts:
    return frozenset(str(item) for item in read_json("org/name", home / CONFIG_FILE).items())


CONFIG_FILE = f"models/org/name/a1/{CONFIG}"
JOURNAL_FILE = f"models/org/name/a1/{JOURNAL}"
PARTIAL_FILE = f"models/org/name/a1/{WEIGHTS}{PARTIAL}"
USE_FILE = "models/org/name/a1/use"
KEPT = {
    one.file: one
    for one in (
        KeptFile("owner", owned, owned),
        KeptFile("rendezvous.address", write_address, read_address),
        KeptFile(
            "measurements/probe-a.json",
            lambda home: CostStore(home / "measurements").keep("probe-a", COST),
            read_cost,
        ),
        KeptFile("measurements/rates-a.json", write_rates, read_rates),
        KeptFile("traces/one.jsonl", trace, trace),
        KeptFile("sessions/a/guesses", lambda home: FileGuesses(home / "sessions" / "a").save(15), read_guesses),
        KeptFile(CONFIG_FILE, write_config, read_config),
        KeptFile(JOURNAL_FILE, write_weights, read_weights),
        KeptFile(PARTIAL_FILE, write_weights, read_weights),
        KeptFile(USE_FILE, write_weights, read_weights),
    )
}
CUT_SHORT, KEEPING = "tests/hostile/test_files_cut_short.py", "tests/sidecar/session/keeping/test_keeping.py"
ELSEWHERE = {
    "token": "ollama/internal/home/token_test.go",
    "logs": "ollama/internal/logbook/logbook_test.go",
    "rendezvous": CUT_SHORT,
    "udp_port": "tests/sidecar/machine/test_socket_place.py",
    "sessions": KEEPING,
}
WRITERS = {
    "machine/embedding/rendezvous_process.py": "tests/sidecar/machine/test_embedded.py",
    "machine/home.py": "owner",
    "machine/socket_place.py": "tests/sidecar/machine/test_socket_place.py",
    "runtime/probe/host_lock.py": "",  # an empty file of the whole machine, to be locked
    "runtime/probe/kept.py": "measurements/probe-a.json",
    "runtime/text/loading.py": "",  # into a folder that is gone when the tokenizer has read it
    "serving/trace.py": "traces/one.jsonl",
    "session/admission/guesses.py": "sessions/a/guesses",
    "session/keeping/file.py": KEEPING,
    "session/keeping/keeper.py": KEEPING,
    "sharing/rates.py": "measurements/rates-a.json",
    "logbook.py": "tests/sidecar/test_logbook.py",
    "weights/providers/source.py": CONFIG_FILE,
    "weights/store/journal.py": JOURNAL_FILE,
    "weights/store/library.py": USE_FILE,
    "weights/store/store.py": PARTIAL_FILE,
    "certificate.py": CUT_SHORT,
    "notes.py": "tests/hostile/test_rendezvous_mail.py",
}
WRITES = re.compile(
    r"write_text|write_bytes|write_whole\(|NamedTemporaryFile|O_CREAT|open\((\"[wax]|[^)\n]*, ?\"[wax])"
)


def cut(whole: bytes) -> Iterator[bytes]:
    yield from (whole[:length] for length in range(len(whole)))


def changed(whole: bytes) -> Iterator[bytes]:
    """Each byte with its lowest bit changed, which makes another digit of one; no text at all."""
    yield from (whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :] for at, byte in enumerate(whole))
    yield b"\xff" + whole[1:]


def named() -> set[str]:
    """What docs/guide/upkeep.md says lies in a home."""
    page = (ROOT / "docs" / "guide" / "upkeep.md").read_text(encoding="utf-8")
    return set(re.findall(r"`~/\.kafila/([a-z_.]+)`", page))


def test_kept_file_when_the_page_on_upkeep_names_it_then_something_here_cuts_it() -> None:
    assert named() | {"models"} == {file.split("/")[0] for file in KEPT} | set(ELSEWHERE)
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())


def test_kept_file_when_a_module_writes_it_then_it_stands_here() -> None:
    folders = ROOT / "sidecar" / "kafila_sidecar", ROOT / "rendezvous" / "kafila_rendezvous"
    modules = [(file.relative_to(folder).as_posix(), file) for folder in folders for file in folder.rglob("*.py")]
    assert {name for name, file in modules if WRITES.search(file.read_text(encoding="utf-8"))} == WRITERS.keys()
    assert all(shown in KEPT or (ROOT / shown).is_file() for shown in filter(None, WRITERS.values()))


@pytest.mark.parametrize("one", KEPT.values(), ids=KEPT)
def test_kept_file_when_it_is_cut_at_any_byte_then_it_says_no_more_than_it_said(one: KeptFile, tmp_path: Path) -> None:
    one.write(tmp_path)
    path = tmp_path / one.file
    whole = path.read_bytes()
    said = one.read(tmp_path)
    for data in cut(whole):
        one.write(tmp_path)
        path.write_bytes(data)
        with suppress(KafilaError):
            assert one.read(tmp_path) <= said, data
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("one", KEPT.values(), ids=KEPT)
def test_kept_file_when_it_is_cut_or_changed_at_any_byte_then_no_error_but_a_sentence(
    one: KeptFile, tmp_path: Path
) -> None:
    one.write(tmp_path)
    path = tmp_path / one.file
    whole = path.read_bytes()
    for data in (*cut(whole), *changed(whole), *ANYTHING):
        path.write_bytes(data)
        with suppress(KafilaError):
            one.read(tmp_path)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("one", KEPT.values(), ids=KEPT)
def test_kept_file_when_it_was_spoilt_then_it_is_written_and_read_again(one: KeptFile, tmp_path: Path) -> None:
    one.write(tmp_path)
    said = one.read(tmp_path)
    path = tmp_path / one.file
    path.write_bytes(path.read_bytes()[:-2])
    with suppress(KafilaError):
        one.read(tmp_path)
    one.write(tmp_path)
    assert len(one.read(tmp_path)) == len(said)  # a rate is another one each time
