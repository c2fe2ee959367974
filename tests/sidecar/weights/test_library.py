"""All weights on a disk: listed truly, removed only when nobody uses them, kept within a limit."""

import os
from pathlib import Path

import pytest

from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.weights.store.library import Library, in_use
from kafila_sidecar.weights.store.store import Store

FILE = "model.safetensors"
SIZE = 64 << 10


def fetched(root: Path, model: str, revision: str, *, used_s: float, whole: bool = True) -> Path:
    folder = root / model / revision
    store = Store(folder)
    with store.writing():
        store.begin(FILE, SIZE, None)
        writer = store.writer(FILE, 0)
        writer.write(os.urandom(SIZE if whole else SIZE // 2))
        writer.settle()
        store.finish(FILE, None)
    with in_use(folder):
        pass
    os.utime(folder / "use", (used_s, used_s))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fetched(tmp_path, "org/old", "a" * 40, used_s=1000)
    fetched(tmp_path, "org/new", "b" * 40, used_s=3000, whole=False)
    fetched(tmp_path, "alone", "c" * 40, used_s=2000)
    return tmp_path


def test_models_when_listed_then_the_latest_used_first_with_what_they_take(root: Path) -> None:
    found = Library(root).models()
    assert [(held.model, held.is_whole, held.in_use) for held in found] == [
        ("org/new", False, False),
        ("alone", True, False),
        ("org/old", True, False),
    ]
    assert all(held.last_used_s == wanted for held, wanted in zip(found, (3000, 2000, 1000), strict=True))
    assert SIZE // 2 <= found[0].disk_bytes < found[1].disk_bytes < SIZE + (32 << 10)


def test_models_when_nothing_was_fetched_then_none(tmp_path: Path) -> None:
    assert Library(tmp_path / "never").models() == []


def test_remove_when_nobody_uses_it_then_gone_with_its_empty_folders(root: Path) -> None:
    library = Library(root)
    freed = library.remove("org/old")
    assert freed >= SIZE
    assert not (root / "org/old").exists()
    assert (root / "org/new").exists()
    library.remove("org/new")
    assert not (root / "org").exists()
    with pytest.raises(NotFound, match="weights of org/old"):
        library.remove("org/old")


def test_remove_when_a_session_uses_it_then_refused_and_whole(root: Path) -> None:
    library, folder = Library(root), root / "alone" / ("c" * 40)
    with in_use(folder), in_use(folder):
        assert [held.in_use for held in library.models()] == [True, False, False]
        with pytest.raises(Refused, match="leave that first"):
            library.remove("alone")
        assert library.prune(unused_for_s=0) > 0
        assert [held.model for held in library.models()] == ["alone"]
        assert (folder / FILE).stat().st_size == SIZE
    assert library.remove("alone") >= SIZE


def test_remove_when_another_process_fetches_it_then_refused(root: Path) -> None:
    with Store(root / "alone" / ("c" * 40)).writing(), pytest.raises(Refused):
        Library(root).remove("alone")


def test_prune_when_some_were_used_lately_then_only_the_others_go(root: Path) -> None:
    with in_use(root / "org/new" / ("b" * 40)):
        pass
    assert Library(root).prune(unused_for_s=60) >= 2 * SIZE
    assert [held.model for held in Library(root).models()] == ["org/new"]


def test_room_when_there_is_a_limit_then_the_longest_unused_go_and_no_more(root: Path) -> None:
    taken = sum(held.disk_bytes for held in Library(root).models())
    Library(root, limit_bytes=taken + SIZE).make_room(SIZE, keep=root / "none")
    assert len(Library(root).models()) == 3
    Library(root, limit_bytes=taken).make_room(1, keep=root / "none")
    assert [held.model for held in Library(root).models()] == ["org/new", "alone"]
    Library(root).make_room(1 << 60, keep=root / "none")  # no limit


def test_room_when_what_is_in_use_leaves_too_little_then_refused_in_words(root: Path) -> None:
    keep = root / "alone" / ("c" * 40)
    with pytest.raises(Refused, match="KAFILA_WEIGHTS_LIMIT"):
        Library(root, limit_bytes=SIZE).make_room(SIZE, keep=keep)
    assert [held.model for held in Library(root).models()] == ["alone"]
