"""The stock command line at a real terminal: what it shows of a session's model is what it shows of stock's."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence

import pytest

from tests.clients.conftest import PATIENCE_S, Sides
from tests.support.cluster import OLLAMA, ClusterMember
from tests.support.terminal import CTRL_C, CTRL_D, SPINNING, Terminal, read

PROMPT = r">>> "
SPINNER = "[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"
LONG = "Tell me about " + "camels and rivers and the sea and " * 90
BOTH = pytest.mark.parametrize("which", ["session", "stock"])

SAID = {
    "settings": [
        "/set parameter seed 7", "/set parameter temperature 0", "/set parameter num_predict 4",
        "/set parameter nonsense 1", "/set parameter seed many", "/set parameter", "/set system Be brief.",
        "/set verbose", "/set quiet", "/set format json", "/set format xml", "/set noformat", "/set wordwrap",
        "/set nowordwrap", "/set history", "/set nohistory", "/set nothink", "/set nonsense", "/set",
    ],
    "shown": [
        "/show", "/show nonsense", "/show license", "/show system", "/set system Be brief.", "/show system",
        "/set parameter seed 7", "/clear",
    ],
    "other models": ["/load", "/load nothing-of-the-kind", "/load MODEL", "/save", "/?", "/? shortcuts", "/nonsense"],
}  # fmt: skip


def chatting(member: ClusterMember, model: str, *flags: str) -> Terminal:
    environment = {**member.environment, "TERM": "xterm-256color"}
    return Terminal([str(OLLAMA), "run", *flags, model], environment)


def told(sides: Sides, which: str, lines: Sequence[str]) -> list[list[str]]:
    """What is shown after each line, the model by the same name."""
    model = str(getattr(sides, which))
    shown = []
    with chatting(sides.member, model) as terminal:
        terminal.until(PROMPT)
        for line in lines:
            terminal.type(line.replace("MODEL", model) + "\r")
            terminal.until(re.escape(line.split()[0]))
            shown.append([one.replace(model, "MODEL") for one in read(terminal.until(PROMPT))])
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    return shown


@pytest.mark.parametrize("lines", SAID.values(), ids=SAID)
def test_command_when_typed_at_the_prompt_then_the_same_is_shown_as_of_stocks(
    sides: Sides, lines: Sequence[str]
) -> None:
    assert told(sides, "session", lines) == told(sides, "stock", lines)


def test_info_when_shown_at_the_prompt_then_of_the_session_s_model(sides: Sides) -> None:
    shown = told(sides, "session", ["/show info", "/show parameters", "/show modelfile", "/show template"])
    assert [line for line in shown[0] if line.startswith("parameters")] == ["parameters          134.52M"]
    assert shown[1][-2].startswith("Model defined parameters") or "temperature" in "".join(shown[1])
    assert "a session" in " ".join(shown[2])
    assert any("<|im_start|>" in line for line in shown[3])


def test_model_when_saved_at_the_prompt_then_refused_and_the_conversation_goes_on(sides: Sides) -> None:
    ((*lines,), _) = told(sides, "session", ["/save mine", "/show system"])
    assert "can't be copied" in " ".join(lines)
    assert "mine" not in json.dumps(sides.member.request("/api/tags")[1])


Moment = Callable[[Terminal], None]


def while_it_connects(terminal: Terminal) -> None:
    terminal.type("Hello\r")
    terminal.until(SPINNER)


def while_the_prompt_is_read(terminal: Terminal) -> None:
    terminal.type(LONG + "\r")
    terminal.until(r"reading [█░]+ \d+ of \d+ tokens|\d\d\d tokens")


def while_it_is_said(terminal: Terminal) -> None:
    terminal.type("Count to a hundred, one by one, in words.\r")
    terminal.until(r"words\.\s")
    terminal.until(r"\x1b\[\?25h[^\x1b>]*[a-zA-Z]{2,}")


MOMENTS: dict[str, Moment] = {
    "while it connects": while_it_connects,
    "while the prompt is read": while_the_prompt_is_read,
    "while it is said": while_it_is_said,
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_answer_when_stopped_by_ctrl_c_then_the_prompt_is_there_and_the_next_one_is_answered(
    sides: Sides, moment: Moment
) -> None:
    with chatting(sides.member, sides.session, "--verbose") as terminal:
        terminal.until(PROMPT)
        terminal.type("/set parameter num_predict 300\r")
        terminal.until("300'")
        terminal.until(PROMPT)
        moment(terminal)
        terminal.type(CTRL_C)
        left = read(terminal.until(PROMPT))
        assert not [line for line in left if "reading" in line.split("^C")[-1] or "Error" in line]
        terminal.type("/set parameter num_predict 3\r")
        terminal.until("to '3'")
        terminal.until(PROMPT)
        terminal.type("Hello\r")
        terminal.until("eval rate")
        terminal.until(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.ended() == 0


def test_answer_when_stopped_while_others_are_before_it_then_the_prompt_is_there(sides: Sides) -> None:
    body = {"model": sides.session, "prompt": "Once upon a time", "options": {"num_predict": 400, "temperature": 0}}
    others = [sides.member.lines("/api/generate", body) for _ in range(2)]  # as many as are answered at once
    for other in others:
        next(other)
    with chatting(sides.member, sides.session) as terminal:
        terminal.until(PROMPT)
        terminal.type("Hello\r")
        terminal.until("waiting for its turn")
        terminal.type(CTRL_C)
        terminal.until(PROMPT)
    for other in others:
        other.close()


def test_prompt_when_it_is_long_then_how_far_it_is_shows_and_is_gone_with_the_first_word(sides: Sides) -> None:
    with chatting(sides.member, sides.session) as terminal:
        terminal.until(PROMPT)
        terminal.type("/set parameter num_predict 3\r")
        terminal.until(PROMPT)
        terminal.type(LONG.replace("camels", "dunes") + "\r")
        shown = terminal.until(r"reading [█░]+ \d+ of \d+ tokens")
        shown += terminal.until(PROMPT)
    *_, after = re.split(r"reading [█░]+ \d+ of \d+ tokens", shown)
    gone, below = after.split("\n\r\x1b[K\x1b[A\r", 1)
    assert "reading" not in below
    assert not re.search(r"[a-z]{2}", re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", gone))


FLAGS = {
    "all that does well": ["--verbose", "--hidethinking", "--keepalive", "5m", "--nowordwrap", "--think=false"],
    "a format that is none": ["--format", "nonsense"],
    "thoughts of a model without": ["--think"],
    "a level that is none": ["--think=nonsense"],
    "a duration that is none": ["--keepalive", "soon"],
}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_flag_when_given_without_a_terminal_then_as_with_stocks(sides: Sides, flags: Sequence[str]) -> None:
    ours, stocks = (plain(sides, model, flags) for model in (sides.session, sides.stock))
    assert ours == stocks


def plain(sides: Sides, model: str, flags: Sequence[str]) -> tuple[int, bool, list[str]]:
    """How it ends, whether something was said, and of what is shown beside that the words before the first number."""
    ran = sides.member.ollama("run", *flags, model, "Hello", timeout_s=PATIENCE_S)
    lines = [re.split(r"\s+[\d.]", line.replace(model, "MODEL"))[0] for line in read(ran.stderr)]
    return ran.returncode, bool(ran.stdout.strip()), lines


def test_format_when_given_then_the_answer_is_of_it(sides: Sides) -> None:
    with chatting(sides.member, sides.session, "--format", "json", "--verbose") as terminal:
        terminal.until(PROMPT)
        terminal.type("/set parameter num_predict 2\r")
        terminal.until("'2'")
        terminal.until(PROMPT)
        terminal.type("Who are you?\r")
        terminal.until(r"you\?\s")
        said = read(terminal.until("total duration"))
    assert any(line.startswith("{") for line in said), said


def test_output_when_piped_then_there_is_nothing_of_how_far_it_is(sides: Sides) -> None:
    command = [str(OLLAMA), "run", sides.session, LONG.replace("camels", "tents")]
    with subprocess.Popen(
        command, env=dict(sides.member.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        first = running.stdout.read(1)
        running.kill()
        beside = running.stderr.read().decode()
    assert first
    assert SPINNING.search(beside)  # stock's is there
    assert "reading" not in beside
