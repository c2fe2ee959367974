"""What is kept on disk, cut short at any byte as by a power failure: mended or set aside, and never a reason to fail.

What is kept of sessions: tests/sidecar/session/keeping; measurements: tests/sidecar/runtime/test_probe.py; the weights'
journal: tests/sidecar/weights/test_store.py; where a rendezvous served: tests/sidecar/machine/test_embedded.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafila_rendezvous.certificate import keep_key_pair, make_key_pair
from kafila_sidecar.errors import Refused
from kafila_sidecar.serving.trace import TraceFile
from kafila_sidecar.session.admission.guesses import FileGuesses
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.presence import Presence
from kafila_sidecar.session.channel.reception import Reception
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Upkeep
from kafila_sidecar.session.channel.whereabouts import Whereabouts
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.trust_world import new_host


def cuts(whole: bytes) -> Iterator[bytes]:
    """Some ten of the ways in which more than a line's end may be cut off, nothing at all included."""
    yield from (whole[:length] for length in range(0, len(whole) - 2, max(1, len(whole) // 10)))


@pytest.mark.parametrize("name", ["certificate.pem", "key.pem"])
def test_key_pair_when_a_file_is_cut_then_another_pair_and_the_old_one_set_aside(tmp_path: Path, name: str) -> None:
    before = keep_key_pair(tmp_path)
    whole = {one: (tmp_path / one).read_bytes() for one in ("certificate.pem", "key.pem")}
    for data in cuts(whole[name]):
        for one, content in whole.items():
            (tmp_path / one).write_bytes(content)
        (tmp_path / name).write_bytes(data)
        after = keep_key_pair(tmp_path)
        assert after.fingerprint != before.fingerprint
        assert keep_key_pair(tmp_path).fingerprint == after.fingerprint
        assert (tmp_path / f"{name}.broken").read_bytes() == data


def test_key_pair_when_writing_stopped_between_its_files_then_a_whole_pair(tmp_path: Path) -> None:
    keep_key_pair(tmp_path)
    (tmp_path / "key.pem").write_bytes(make_key_pair().key_pem)  # of a pair whose certificate did not get there
    pair = keep_key_pair(tmp_path)
    assert keep_key_pair(tmp_path).fingerprint == pair.fingerprint
    (tmp_path / "certificate.pem").unlink()
    assert keep_key_pair(tmp_path).fingerprint != pair.fingerprint


def test_trace_when_its_last_line_is_cut_then_only_that_one_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "one.jsonl"
    traces = TraceFile(path)
    traces.append({"request": "1"})
    traces.append({"request": "2"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        traces.append({"request": "3"})
        lines = path.read_text().splitlines()
        assert json.loads(lines[-1]) == {"request": "3"}
        assert len(lines) - 1 <= whole[:length].count(b"\n") + 1


def reception(replica: Replica, folder: Path, *words: str) -> Reception:
    return Reception(
        replica=replica,
        upkeep=Upkeep(replica),
        place=Code(7, words),
        guesses=FileGuesses(folder),
        versions=Versions("1", 1, "1"),
        answer=lambda _: None,
        presence=Presence(0.0),
        where=Whereabouts(""),
    )


def test_host_when_it_comes_back_then_it_has_its_code_and_count(tmp_path: Path) -> None:
    FileGuesses(tmp_path).save(5)
    back = reception(new_host(), tmp_path, "ocean", "velvet", "lamp")
    assert back.code is not None
    assert back.code.words == ("ocean", "velvet", "lamp")
    assert back.state == "paused"


@pytest.mark.parametrize("damaged", [b"", b"x", b"\xff", b"5\x00"])
def test_host_when_the_count_of_guesses_is_damaged_then_it_comes_back_with_a_new_code(
    tmp_path: Path, damaged: bytes
) -> None:
    FileGuesses(tmp_path).save(3)
    (tmp_path / "guesses").write_bytes(damaged)
    with pytest.raises(Refused):
        FileGuesses(tmp_path).load()
    back = reception(new_host(), tmp_path, "ocean", "velvet", "lamp")
    assert back.code is not None
    assert back.code.words != ("ocean", "velvet", "lamp")
    assert back.state == "open"
