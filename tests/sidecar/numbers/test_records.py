"""The records of requests, read back."""

import json
from pathlib import Path

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import NotFound
from kafila_sidecar.numbers.records import MOST, records
from kafila_sidecar.serving.trace import TraceFile

NONE: dict[str, object] = {}


def kept(folder: Path, count: int) -> Path:
    path = folder / "5e55.jsonl"
    for number in range(count):
        TraceFile(path).append({"request": str(number), "output_tokens": number})
    return path


def asked(path: Path, *, request: str = "", most: int = 0) -> list[str]:
    reply = records(path, NONE, pb.TracesRequest(request=request, most=most))
    return [json.loads(one)["request"] for one in reply.records_json]


def test_records_are_the_latest_that_were_asked_for_oldest_first(tmp_path: Path) -> None:
    path = kept(tmp_path, 5)
    assert asked(path) == ["4"]
    assert asked(path, most=3) == ["2", "3", "4"]
    assert asked(path, request="1") == ["1"]


def test_records_when_very_many_are_asked_for_then_the_answer_is_bounded(tmp_path: Path) -> None:
    assert len(asked(kept(tmp_path, MOST + 5), most=4_000_000_000)) == MOST


def test_records_when_the_file_has_begun_anew_then_the_old_one_counts_too(tmp_path: Path) -> None:
    path = kept(tmp_path, 2)
    path.replace(path.with_suffix(".old.jsonl"))
    TraceFile(path).append({"request": "9"})
    assert asked(path, most=9) == ["0", "1", "9"]


def test_records_when_a_line_is_cut_short_then_the_others_are_read(tmp_path: Path) -> None:
    path = kept(tmp_path, 1)
    path.write_bytes(path.read_bytes() + b'{"request": "5", "outp\n[1]\n{"request": "6"}\n')
    assert asked(path, most=9) == ["0", "6"]


def test_records_when_this_machine_is_not_the_head_then_what_it_heard_last_is_told(tmp_path: Path) -> None:
    heard = {"request": "3", "output_tokens": 1}
    reply = records(tmp_path / "none.jsonl", heard, pb.TracesRequest())
    assert [json.loads(one) for one in reply.records_json] == [heard]


def test_records_when_there_is_none_of_it_then_says_who_keeps_them(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'7' is kept here: the machine that is the head"):
        asked(kept(tmp_path, 3), request="7")
