"""A chat template or tokenizer that runs without end: its process ends, in words, and nobody else waits for it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from kafila_sidecar.errors import InvalidInput, Refused, Unavailable
from kafila_sidecar.runtime.text.apart.child_process import TextLimits
from kafila_sidecar.runtime.text.apart.text_process import MOST_FAILURES, TextProcess, try_text
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.tiny import write_tokenizer

MODEL = "mallory/model"
BRIEF = TextLimits(job_s=1.5)
BACKTRACKS = "a*a*a*[^a!]"
"""Takes the third power of the time that a row of the letter has, at each of its places."""
LOOPS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
DOUBLES = "{% set ns = namespace(x='kafila') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
PLAIN = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"


def on(word: str, does: str) -> str:
    """A template that does it when the last message is this word, so that no trial notices."""
    return f"{{% if messages[-1].content == '{word}' %}}{does}{{% endif %}}{PLAIN}"


def folder_with(folder: Path, template: str = PLAIN, pattern: str = "") -> Path:
    """A byte-level tokenizer's files, with a template and an expression that texts are split by."""
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    (folder / "config.json").write_text('{"model_type": "llama", "eos_token_id": 2}')
    (folder / "chat_template.jinja").write_text(template)
    if pattern:
        described = json.loads((folder / "tokenizer.json").read_text())
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, described["pre_tokenizer"]]}
        (folder / "tokenizer.json").write_text(json.dumps(described))
    return folder


def chat(*contents: str) -> str:
    messages = [{"role": "user", "content": content} for content in contents]
    return f"\x02kafila1 {json.dumps({'messages': messages})}\x03"


@asynccontextmanager
async def text(folder: Path, limits: TextLimits = BRIEF) -> AsyncIterator[TextProcess]:
    made = TextProcess(folder, model=MODEL, limits=limits)
    try:
        await made.vocabulary()
        yield made
    finally:
        await made.close()


async def ids(text: TextProcess, prompt: str) -> Sequence[int]:
    return await text.ids(prompt, limit=1000, keep=4, truncate=True)


OVERRUNS = {
    "loop": (LOOPS, BRIEF, "ran for more than 1.5 s"),
    "double": (DOUBLES, TextLimits(memory_bytes=700 << 20), "took more than 0.7 GB of memory"),
}


@pytest.mark.parametrize("word", OVERRUNS)
async def test_prompt_when_the_template_overruns_then_refused_by_name_and_the_next_is_answered(
    tmp_path: Path, word: str
) -> None:
    does, limits, what = OVERRUNS[word]
    folder = folder_with(tmp_path, on(word, does))
    expected = Tokenizer.load(folder).ids(chat("hello"), limit=1000)
    async with text(folder, limits) as made:
        with pytest.raises(Refused, match=rf"^the chat template of {MODEL} {what}: "):
            await ids(made, chat(word))
        assert list(await ids(made, chat("hello"))) == expected


async def test_prompt_when_the_tokenizers_expression_backtracks_then_refused_by_name(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, pattern=BACKTRACKS)
    async with text(folder) as made:
        assert len(await ids(made, "aab")) == 3
        with pytest.raises(Refused, match=rf"^the tokenizer of {MODEL} ran for more than 1.5 s: "):
            await ids(made, ("a" * 300 + "!") * 20)


async def test_prompt_when_the_tokenizer_breaks_its_process_then_refused_and_the_next_is_answered(
    tmp_path: Path,
) -> None:
    async with text(folder_with(tmp_path, pattern="(a+)+$"), TextLimits()) as made:
        with pytest.raises(Refused, match=rf"^the tokenizer of {MODEL} broke the process that it ran in"):
            await ids(made, "a" * 200 + "!")
        assert len(await ids(made, "b")) == 1


async def test_memory_when_the_system_sets_no_limit_then_the_process_is_watched(tmp_path: Path) -> None:
    """As on macOS: the limit is below what the process takes to come up, and the system does not know of it."""
    watched = TextLimits(memory_bytes=20 << 20)
    made = TextProcess(folder_with(tmp_path), model=MODEL, limits=watched)
    try:
        with pytest.raises(Refused, match="memory"):
            await made.vocabulary()
    finally:
        await made.close()


async def test_other_session_when_one_template_loops_then_it_answers_meanwhile(tmp_path: Path) -> None:
    async with (
        text(folder_with(tmp_path / "evil", on("loop", LOOPS))) as evil,
        text(folder_with(tmp_path / "good")) as good,
    ):
        looping = asyncio.create_task(ids(evil, chat("loop")))
        for _ in range(5):
            assert await ids(good, chat("hello"))
        assert not looping.done()
        with pytest.raises(Refused, match="ran for more than"):
            await looping


TRIALS = {
    "chat template": (LOOPS + PLAIN, ""),
    "tokenizer": (PLAIN + ("a" * 300 + "!") * 5, BACKTRACKS),
}


@pytest.mark.parametrize("named", TRIALS)
async def test_create_when_the_trial_has_no_end_then_refused_by_name(tmp_path: Path, named: str) -> None:
    with pytest.raises(Refused, match=rf"^the {named} of {MODEL} ran for more than 1.5 s: "):
        await try_text(folder_with(tmp_path, *TRIALS[named]), model=MODEL, limits=BRIEF)


async def test_asker_when_gone_in_the_middle_then_the_next_one_gets_its_own_answer(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    tokenizer = Tokenizer.load(folder)
    async with text(folder, TextLimits()) as made:
        for turns in (1, 2, 3, 5, 8, 13):
            leaving = asyncio.create_task(ids(made, chat("a " * 5000)))
            for _ in range(turns):
                await asyncio.sleep(0)
            leaving.cancel()
            answers = await asyncio.gather(*(ids(made, chat(word)) for word in ("one", "three")))
            assert [list(answer) for answer in answers] == [
                tokenizer.ids(chat(word), limit=1000) for word in ("one", "three")
            ]


async def test_process_when_it_was_killed_then_another_one_answers_and_it_ends_with_its_owner(tmp_path: Path) -> None:
    before = set(_children())
    async with text(folder_with(tmp_path), TextLimits()) as made:
        (process,) = set(_children()) - before
        if sys.platform.startswith("linux"):
            assert not [name for name in process.environ() if name.startswith(("KAFILA", "HF_TOKEN", "USER"))]
        process.kill()
        process.wait(5)
        for _ in range(9):
            await asyncio.sleep(0)  # its end is heard of
        assert await ids(made, chat("hello"))
        (second,) = set(_children()) - before
    assert not second.is_running()
    with pytest.raises(Unavailable):
        await ids(made, chat("hello"))


async def test_process_when_it_never_comes_up_then_it_is_not_started_for_ever(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    content = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text("{")
    made = TextProcess(folder, model=MODEL, limits=BRIEF)
    try:
        for _ in range(MOST_FAILURES):
            with pytest.raises(Refused, match=r"tokenizer\.json"):
                await made.vocabulary()
        (folder / "tokenizer.json").write_text(content)
        with pytest.raises(Refused, match=r"tokenizer\.json"):  # it rests, and so does not see that
            await made.vocabulary()
    finally:
        await made.close()


def test_process_when_its_owner_is_gone_then_it_ends(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, psutil, sys\n"
        "from pathlib import Path\n"
        "from kafila_sidecar.runtime.text.apart.text_process import TextProcess\n"
        "async def main():\n"
        "    await TextProcess(Path(sys.argv[1]), model='m').vocabulary()\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(folder_with(tmp_path))], stdout=subprocess.PIPE, check=False)
    _until(lambda: not _runs(int(run.stdout)))


HOSTILE_PROMPTS = {
    "nothing": "\x02kafila1 \x03",
    "nested": "\x02kafila1 " + "[" * 200_000 + "\x03",
    "many lists": '\x02kafila1 {"messages": [' + "[]," * 300_000 + "[]]}\x03",
}


async def test_prompt_when_it_makes_no_sense_then_the_process_refuses_it_in_words_and_lives(tmp_path: Path) -> None:
    async with text(folder_with(tmp_path), TextLimits()) as made:
        before = _children()
        for prompt in HOSTILE_PROMPTS.values():
            with pytest.raises(InvalidInput, match="envelope"):
                await ids(made, prompt)
        assert [one.pid for one in _children()] == [one.pid for one in before]


def _children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        os.sched_yield()
        psutil.cpu_percent(0.05)
    raise AssertionError("it never came to pass")
