"""The records of requests as they were kept here, for whoever asks what one of them took."""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import NotFound

MOST = 100  # records in one answer
DEFAULT = 1


def records(file: Path, heard: Mapping[str, Any], request: pb.TracesRequest) -> pb.TracesReply:
    """The latest that fit, oldest first. `heard`: the head's latest, for where none were served here.

    Raises: NotFound where there is none, or none of that request.
    """
    wanted = (one for one in _kept(file) if not request.request or one.get("request") == request.request)
    found = deque(wanted, maxlen=min(request.most or DEFAULT, MOST))
    if not found and heard and request.request in ("", heard.get("request")):
        found.append(dict(heard))
    if not found:
        which = f" {request.request[:40]!r}" if request.request else ""
        raise NotFound(f"no record of a request{which} is kept here: the machine that is the head keeps them")
    return pb.TracesReply(records_json=[json.dumps(one) for one in found])


def _kept(file: Path) -> Iterator[dict[str, Any]]:
    """Of the old file, then of the present one; a line that a crash has cut short is passed over."""
    for path in (file.with_suffix(".old.jsonl"), file):
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
