"""One life of the process that renders and encodes a session's prompts: what it may take, and how it is ended."""

import asyncio
import json
import math
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kafila_sidecar.errors import KafilaError, Refused, Unavailable, from_code
from kafila_sidecar.lack import in_words
from kafila_sidecar.runtime.text.apart.framing import LENGTHS, TOO_LARGE, frame, lengths

CHILD = "kafila_sidecar.runtime.text.apart.child"
ALARM_S = 5  # after its deadline a process ends itself, should nobody be there any more who would
LOOK_S = 0.2  # between two looks at what a process holds
_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS")
_ALONE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What a session's text may take. load_s: for the tokenizer's files; job_s: for trying the templates, and for each
    prompt; wait_s: for other prompts before that. memory_bytes: of the process, 0.5 GB with the largest vocabularies.
    """

    load_s: float = 60.0
    job_s: float = 10.0
    wait_s: float = 120.0
    memory_bytes: int = 3 << 30


class ChildProcess:
    """Does one job at a time. Who overruns its limits is dead afterwards, as after a call that was cancelled."""

    def __init__(self, process: Process, *, model: str, limits: TextLimits) -> None:
        self._process = process
        self._model = model
        self._limits = limits
        self._is_too_large = False
        self._is_over = False

    @classmethod
    async def start(cls, place: Path, *, model: str, limits: TextLimits) -> "ChildProcess":
        """`place`: a folder for what it writes. Raises KafilaError when it can't be started."""
        with in_words():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", CHILD),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                cwd=place,
                env=_environment(place),
                start_new_session=True,
            )
        return cls(process, model=model, limits=limits)

    @property
    def is_alive(self) -> bool:
        assert self._process.stdout is not None
        return not (self._is_over or self._process.stdout.at_eof())

    async def do(self, job: str, data: bytes = b"", *, deadline_s: float, **fields: Any) -> bytes:
        """What the job makes.

        Raises: Refused when it ran too long, took too much or broke the process; KafilaError as the job says.
        """
        doing, is_done = "tokenizer", False
        looking = asyncio.create_task(self._look(), name="look at the text process")
        try:
            async with asyncio.timeout(deadline_s):
                await self._tell({"job": job, "alarm_s": math.ceil(deadline_s) + ALARM_S, **fields}, data)
                told, made = await self._hear()
                while "doing" in told:
                    doing = told["doing"]
                    told, made = await self._hear()
            is_done = told.get("code") != TOO_LARGE
        except TimeoutError:
            raise Refused(self._sentence(doing, f"ran for more than {deadline_s:g} s")) from None
        except (OSError, EOFError, ValueError, KeyError):
            raise self._broken(doing) from None
        finally:
            looking.cancel()
            if not is_done:
                await self.end()
        if not is_done:
            raise Refused(self._sentence(doing, self._too_much()))
        if "code" in told:
            raise from_code(told["code"], told["sentence"])
        return made

    def kill(self) -> None:
        self._is_over = True
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Returns when it is gone."""
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _tell(self, fields: Mapping[str, Any], data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(frame(fields, data))
        await self._process.stdin.drain()

    async def _hear(self) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdout is not None
        read = self._process.stdout.readexactly
        fields, data = lengths(await read(LENGTHS.size))
        return dict(json.loads(await read(fields))), await read(data)

    async def _look(self) -> None:
        """Ends a process that holds too much: macOS knows no limit of addresses."""
        with suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            while process.memory_info().rss <= self._limits.memory_bytes:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(LOOK_S)
            self._is_too_large = True
            self.kill()

    def _broken(self, doing: str) -> KafilaError:
        if self._is_too_large:
            return Refused(self._sentence(doing, self._too_much()))
        if self._is_over:
            return Unavailable(f"the session of {self._model} is over")
        return Refused(self._sentence(doing, "broke the process that it ran in, or took too much memory"))

    def _too_much(self) -> str:
        return f"took more than {self._limits.memory_bytes / 1e9:.1f} GB of memory"

    def _sentence(self, doing: str, what: str) -> str:
        return f"the {doing} of {self._model} {what}: ask for less at once, or choose another model"


def _environment(place: Path) -> dict[str, str]:
    """No token, key or home of the user's."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = dict.fromkeys(("HOME", "TMPDIR", "HF_HOME"), str(place))
    return {**kept, **_ALONE, **dict.fromkeys(_ONE_THREAD, "1"), **own}
