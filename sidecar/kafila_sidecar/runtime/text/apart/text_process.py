"""The text of one session or of one trial: a process that is started when it is first needed, and again after it died.

Prompts take turns. A job whose asker is gone runs on to its end, or its deadline, before the next one begins.
"""

import asyncio
import json
import logging
import tempfile
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kafila_rendezvous.front.folder import HeldFolder
from kafila_sidecar.errors import KafilaError, TimedOut, Unavailable
from kafila_sidecar.lack import in_words
from kafila_sidecar.runtime.answer.calls import Call
from kafila_sidecar.runtime.text.apart.child_process import ChildProcess, TextLimits
from kafila_sidecar.runtime.text.options import unusable
from kafila_sidecar.runtime.text.vocabulary import Vocabulary, from_json

log = logging.getLogger(__name__)

MOST_FAILURES = 3  # starts in a row that fail; after that it rests
REST_S = 30.0


class TextProcess:
    """Renders and encodes for the checkpoint whose small files lie in `folder`. `model` is what sentences call it."""

    def __init__(self, folder: Path, *, model: str, limits: TextLimits | None = None) -> None:
        self._folder = folder.absolute()
        self._model = model
        self._limits = limits or TextLimits()
        self._turn = asyncio.Lock()
        self._place: HeldFolder | None = None  # for what the process writes
        self._child: ChildProcess | None = None
        self._running: asyncio.Task[bytes] | None = None
        self._vocabulary: Vocabulary | None = None
        self._failures = 0
        self._rests_until = 0.0
        self._fault: KafilaError | None = None
        self._closed = False

    async def vocabulary(self) -> Vocabulary:
        """Starts the process unless it runs, and says what it has read.

        Raises: KafilaError when the checkpoint's text can't be used, or the process can't be started.
        """
        if self._vocabulary is None:
            await self._do("", b"", self._limits.job_s)
        assert self._vocabulary is not None
        return self._vocabulary

    async def check(self) -> None:
        """Raises: Refused when conversations can't be rendered for this model; see `Tokenizer.check`."""
        await self._do("check", b"", self._limits.job_s)

    async def ids(
        self,
        prompt: str,
        *,
        limit: int,
        keep: int,
        truncate: bool,
        cut_to: int | None = None,
        plain: bool = False,
        suffix: str = "",
        begun: bool = False,
    ) -> Sequence[int]:
        """See `Tokenizer.ids`.

        Raises: InvalidInput for a prompt that makes no sense or is too long, Refused for one on which the checkpoint's
        template or tokenizer overruns its limits, TimedOut when others' prompts took too long before it.
        """
        room = {"limit": limit, "keep": keep, "truncate": truncate, "cut_to": cut_to}
        fit = {**room, "plain": plain, "suffix": suffix, "begun": begun}
        made = array("i")
        made.frombytes(await self._do("ids", prompt.encode(), self._limits.job_s, fit=fit))
        return made

    async def calls(self, text: str, *, reader: str, prompt: str) -> Sequence[Call]:
        """The calls of tools in a part of an answer to a prompt; see `read_calls`.

        Raises: Refused when finding them overruns the limits, TimedOut as `ids`.
        """
        data = json.dumps({"text": text, "prompt": prompt}).encode()
        return list(json.loads(await self._do("calls", data, self._limits.job_s, reader=reader)))

    def kill(self) -> None:
        """No more prompts; what runs fails."""
        self._closed = True
        if self._child is not None:
            self._child.kill()

    async def close(self) -> None:
        """Returns when the process and its folder are gone."""
        self.kill()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._child is not None:
            await self._child.end()
        if self._place is not None:
            await asyncio.to_thread(self._place.close)

    # ---- One job after another

    async def _do(self, job: str, data: bytes, deadline_s: float, **fields: Any) -> bytes:
        async with self._in_turn():
            if self._closed:
                raise Unavailable(f"the session of {self._model} is over")
            self._running = asyncio.create_task(self._done(job, data, deadline_s, fields), name="text job")
            self._running.add_done_callback(_heard)
            return await asyncio.shield(self._running)

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await self._turn.acquire()
        except TimeoutError:
            waited = f"{self._limits.wait_s:.0f} s"
            raise TimedOut(f"other prompts of this session were rendered for {waited}: try again later") from None
        try:
            if self._running is not None:
                await asyncio.wait([self._running])  # its asker was cancelled; its deadline is this wait's
            yield
        finally:
            self._turn.release()

    async def _done(self, job: str, data: bytes, deadline_s: float, fields: dict[str, Any]) -> bytes:
        child = await self._alive()
        return await child.do(job, data, deadline_s=deadline_s, **fields) if job else b""

    # ---- The process

    async def _alive(self) -> ChildProcess:
        if self._child is not None and self._child.is_alive:
            return self._child
        if self._failures >= MOST_FAILURES and self._fault and asyncio.get_running_loop().time() < self._rests_until:
            raise type(self._fault)(str(self._fault))
        try:
            self._child = await self._started()
        except KafilaError as error:
            self._failures, self._fault = self._failures + 1, error
            self._rests_until = asyncio.get_running_loop().time() + REST_S
            raise
        self._failures = 0
        return self._child

    async def _started(self) -> ChildProcess:
        if self._place is None:
            with in_words():
                self._place = await asyncio.to_thread(HeldFolder, Path(tempfile.gettempdir()))
        child = await ChildProcess.start(self._place.path, model=self._model, limits=self._limits)
        is_ready = False
        try:
            limits = self._limits
            folder, memory_bytes = str(self._folder), limits.memory_bytes
            await child.do("load", deadline_s=limits.load_s, folder=folder, memory_bytes=memory_bytes)
            told = await child.do("read", deadline_s=limits.job_s)
            if self._vocabulary is None:
                self._vocabulary = await asyncio.to_thread(from_json, told)
                _tell_passed_over(self._vocabulary)
            is_ready = True
            return child
        finally:
            if not is_ready:
                await child.end()


def _tell_passed_over(vocabulary: Vocabulary) -> None:
    if passed_over := unusable(vocabulary.generation_config):
        log.info("generation_config_passed_over keys=%s", ",".join(passed_over))


def _heard(task: "asyncio.Task[bytes]") -> None:
    """Whoever waited for it may be gone: nobody has to hear how it ended."""
    if not task.cancelled():
        task.exception()


async def try_text(folder: Path, *, model: str, limits: TextLimits | None = None) -> None:
    """Raises: Refused for a tokenizer or chat template that can't be used, before anybody loads a weight."""
    text = TextProcess(folder, model=model, limits=limits)
    try:
        await text.check()
    finally:
        await text.close()


async def read_vocabulary(folder: Path, *, model: str, limits: TextLimits | None = None) -> Vocabulary:
    """Of a checkpoint that nobody has asked for text yet. Raises: Refused for a tokenizer that can't be used."""
    text = TextProcess(folder, model=model, limits=limits)
    try:
        return await text.vocabulary()
    finally:
        await text.close()
