"""The process in which a session's prompts are rendered and encoded; a program that is run with `python -m`.

It reads jobs on its standard input and answers each on its output, with notes before that say what runs now. It has
limits of its own, and ends when a job has overrun them by far, so that it outlives nobody.
"""

import json
import os
import resource
import signal
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from kafila_sidecar.errors import KafilaError, Refused
from kafila_sidecar.runtime.text.apart.framing import LENGTHS, TOO_LARGE, frame, lengths

LONGEST_SENTENCE = 2000  # characters; templates may raise any text
MOST_FILE_BYTES = 256 << 20  # of what it writes: copies of tokenizer files in another encoding

Job = Callable[[Mapping[str, Any], bytes], bytes]


def main() -> None:
    """Answers until its input ends."""
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _silence()
    child = Child(lambda fields, data=b"": _write(answers, frame(fields, data)))
    while (job := _read(jobs)) is not None:
        fields, data = job
        signal.alarm(fields["alarm_s"])
        child.do(fields, data)
        signal.alarm(0)


class Child:
    """Does one job after another. `answer` takes what is to be told."""

    def __init__(self, answer: Callable[..., None]) -> None:
        self._answer = answer
        self._files: Any = None
        self._tokenizer: Any = None
        self._folder = Path()
        self._jobs: dict[str, Job] = {
            "load": self._load,
            "read": self._read,
            "check": self._check,
            "ids": self._ids,
            "calls": self._calls,
        }

    def do(self, fields: Mapping[str, Any], data: bytes) -> None:
        """One job; what it is refused with is told."""
        try:
            made = self._jobs[fields["job"]](fields, data)
        except KafilaError as error:
            self._answer({"code": error.code, "sentence": str(error)[:LONGEST_SENTENCE]})
        except MemoryError:
            self._answer({"code": TOO_LARGE, "sentence": ""})
        except Exception as error:  # noqa: BLE001  # libraries raise all kinds for what they were not made for
            self._answer({"code": Refused.code, "sentence": f"the checkpoint's text can't be used: {error!r}"[:300]})
        else:
            self._answer({}, made)

    def _load(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        """The tokenizer's files."""
        from kafila_sidecar.runtime.text.loading import load_files

        _limit(fields["memory_bytes"])
        self._folder = Path(fields["folder"])
        self._files = load_files("the checkpoint", self._folder)
        return b""

    def _read(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        """The templates are tried; the vocabulary."""
        from kafila_sidecar.runtime.text.templates import find_templates
        from kafila_sidecar.runtime.text.tokenizer import Tokenizer
        from kafila_sidecar.runtime.text.vocabulary import to_json

        files, self._files = self._files, None
        templates = find_templates("the checkpoint", self._folder)
        self._tokenizer = Tokenizer(files, templates, doing=lambda what: self._answer({"doing": what}))
        return to_json(self._tokenizer)

    def _check(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        self._tokenizer.check()
        return b""

    def _ids(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        ids = self._tokenizer.ids(data.decode(), **fields["fit"])
        return array("i", ids).tobytes()

    def _calls(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        """The calls of tools in a part of an answer."""
        from kafila_sidecar.runtime.answer.calls import read_calls
        from kafila_sidecar.runtime.text.prompt import ChatPrompt, parse_prompt

        self._answer({"doing": "tool parser"})
        given = json.loads(data)
        prompt = parse_prompt(given["prompt"])
        tools = prompt.tools if isinstance(prompt, ChatPrompt) else ()
        return json.dumps(read_calls(given["text"], reader=fields["reader"], tools=tools)).encode()


def _limit(memory_bytes: int) -> None:
    """No more addresses than that, no core dumps, no large files. macOS takes no limit of addresses."""
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MOST_FILE_BYTES),
    ):
        _, hard = resource.getrlimit(kind)
        lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (lowest, lowest))
        except (ValueError, OSError):
            continue


def _silence() -> None:
    """Libraries' own words, which may quote a checkpoint's, go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _read(source: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    head = source.read(LENGTHS.size)
    if len(head) < LENGTHS.size:
        return None
    fields, data = lengths(head)
    return dict(json.loads(source.read(fields))), source.read(data)


def _write(target: BinaryIO, message: bytes) -> None:
    target.write(message)
    target.flush()


if __name__ == "__main__":
    main()
