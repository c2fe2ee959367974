import errno
import hashlib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.manifest import Tensor
from kafila_sidecar.weights.format.ranges import Ranges, Span
from kafila_sidecar.weights.store.journal import room_on_disk
from kafila_sidecar.weights.store.store import JOURNAL, Store, StoreBusy
from kafila_sidecar.weights.store.verify import damaged

FILE = "model.safetensors"


def store_with(folder: Path, *spans: tuple[int, int], size_bytes: int = 100) -> Store:
    store = Store(folder)
    with store.writing():
        store.begin(FILE, size_bytes, '"tag"')
        for start, end in spans:
            writer = store.writer(FILE, start)
            writer.write(bytes(range(start, end)))
            writer.settle()
    return store


def tensor(start: int, end: int) -> Tensor:
    return Tensor(f"t{start}", FILE, "U8", (end - start,), start, end)


def test_what_was_noted_is_held_by_the_next_process_too(tmp_path: Path) -> None:
    store_with(tmp_path, (0, 10), (20, 30))
    store = Store(tmp_path)
    assert store.holds([tensor(0, 10), tensor(22, 30)])
    assert not store.holds([tensor(8, 22)])
    assert store.read(FILE, 20, 30) == bytes(range(20, 30))
    assert store.missing({FILE: Ranges([Span(5, 25)])}) == {FILE: Ranges([Span(10, 20)])}


def test_file_with_holes_has_its_full_length_and_is_named_partial(tmp_path: Path) -> None:
    store = store_with(tmp_path, (90, 100), size_bytes=1 << 32)
    assert store.path(FILE).name == f"{FILE}.partial"
    assert store.path(FILE).stat().st_size == 1 << 32
    assert store.path(FILE).stat().st_blocks * 512 < 1 << 20


def test_bytes_written_but_not_noted_do_not_count(tmp_path: Path) -> None:
    store = store_with(tmp_path)
    store.writer(FILE, 0).write(b"x" * 100)
    assert not Store(tmp_path).holds([tensor(0, 1)])


def test_tensor_that_the_journal_lacks_is_refused_to_the_loader(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 10))
    assert store.files_for([tensor(0, 10)]) == {tmp_path / f"{FILE}.partial": frozenset({"t0"})}
    with pytest.raises(Refused, match="t5 has not been fetched"):
        store.files_for([tensor(0, 10), tensor(5, 11)])


@pytest.mark.parametrize("torn", range(1, 40))
def test_journal_torn_by_a_crash_loses_its_last_line_only(tmp_path: Path, torn: int) -> None:
    store_with(tmp_path, (0, 10), (20, 30))
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    journal.write_bytes(whole[: max(last, len(whole) - torn)])
    store = Store(tmp_path)
    assert store.holds([tensor(0, 10)])
    assert not store.holds([tensor(20, 30)])
    with store.writing():
        writer = store.writer(FILE, 40)
        writer.write(b"12345")
        writer.settle()
    assert Store(tmp_path).holds([tensor(0, 10), tensor(40, 45)])


@pytest.mark.parametrize("garbage", [b"\xff\xff\n", b"{}\n", b'{"file": "x", "held": [0, 5]}\n', b'{"file": 1}\n'])
def test_journal_counts_up_to_its_first_senseless_line(tmp_path: Path, garbage: bytes) -> None:
    store_with(tmp_path, (0, 10), (20, 30))
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join([*lines[:2], garbage, *lines[2:]]))
    assert Store(tmp_path).holds([tensor(0, 10)])
    assert not Store(tmp_path).holds([tensor(20, 30)])


def test_file_of_another_length_or_gone_is_not_held(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 10))
    store.path(FILE).write_bytes(b"short")
    assert not Store(tmp_path).holds([tensor(0, 10)])
    store.path(FILE).unlink()
    assert not Store(tmp_path).holds([tensor(0, 10)])


def test_file_that_begins_anew_forgets_what_was_held(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 10))
    with store.writing():
        store.begin(FILE, 100, '"other"')
    for each in (store, Store(tmp_path)):
        assert not each.holds([tensor(0, 10)])


def test_whole_file_gets_its_own_name_if_its_digest_is_right(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 60), (60, 100))
    store.finish(FILE, hashlib.sha256(bytes(range(100))).hexdigest())
    assert store.path(FILE) == tmp_path / FILE
    assert Store(tmp_path).holds([tensor(0, 100)])


def test_damaged_whole_file_is_refused_and_forgotten(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 100))
    with pytest.raises(Refused, match=f"{FILE} is damaged"):
        store.finish(FILE, hashlib.sha256(b"else").hexdigest())
    for each in (store, Store(tmp_path)):
        assert not each.holds([tensor(0, 1)])


def test_file_with_holes_keeps_the_name_partial(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 99))
    store.finish(FILE, None)
    assert store.path(FILE).name == f"{FILE}.partial"


def test_folder_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    wait = "import sys\nfrom pathlib import Path\nfrom kafila_sidecar.weights.store.store import Store\n"
    wait += "with Store(Path(sys.argv[1])).writing():\n print('locked', flush=True)\n sys.stdin.read()"
    command = [sys.executable, "-c", wait, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(StoreBusy, match="another Kafila process"), Store(tmp_path).writing():
            pass
        other.communicate(b"")
    with Store(tmp_path).writing():
        pass


def test_file_that_lies_whole_elsewhere_is_used_there_and_never_touched(tmp_path: Path) -> None:
    original = tmp_path / "elsewhere.safetensors"
    original.write_bytes(bytes(100))
    store = Store(tmp_path / "own", whole={FILE: original})
    assert store.files_for([tensor(0, 100)]) == {original: frozenset({"t0"})}
    store.finish(FILE, "0" * 64)
    assert original.read_bytes() == bytes(100)


def test_full_disk_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the disk is full at"), room_on_disk(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


@settings(deadline=None)  # the disk decides
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30)), max_size=8), st.integers(0, 99))
def test_byte_when_it_changes_on_disk_then_noticed_and_only_what_came_with_it_is_missing(
    spans: list[tuple[int, int]], victim: int
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        store_with(folder, *((start, min(100, start + length)) for start, length in spans))
        store = Store(folder)
        everything = {FILE: Ranges([Span(0, 100)])}
        held = store.held(FILE)
        assert held is not None
        assert damaged(store, everything) == 0
        with store.path(FILE).open("r+b") as file:
            file.seek(victim)
            file.write(bytes([victim ^ 1]))
        hit = [known for known in held.sums if known.start <= victim < known.end]
        assert damaged(store, everything) == sum(known.end - known.start for known in hit)
        after = Store(folder).held(FILE)
        assert after is not None
        assert after.ranges == held.ranges.minus(Ranges.of(Span(known.start, known.end) for known in hit))


def test_sums_when_the_journal_is_mended_then_kept(tmp_path: Path) -> None:
    store = store_with(tmp_path, (0, 10), (10, 20), (40, 50))
    before = store.held(FILE)
    with store.writing():
        after = store.held(FILE)
    assert before is not None
    assert after is not None
    assert sorted(before.sums) == sorted(after.sums)
    assert after.ranges == before.ranges


def test_journal_when_it_is_of_an_older_version_then_what_it_lists_is_held(tmp_path: Path) -> None:
    store_with(tmp_path)
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write(f'{{"file": "{FILE}", "held": [0, 10]}}\n')
    store = Store(tmp_path)
    assert store.holds([tensor(0, 10)])
    assert damaged(store, {FILE: Ranges([Span(0, 100)])}) == 0
    with store.writing():
        assert store.holds([tensor(0, 10)])
