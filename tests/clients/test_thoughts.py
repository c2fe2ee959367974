"""A model that thinks before it answers, said by a ring of real processes, at the stock command line."""

from collections.abc import Iterator

import pytest

from tests.clients.conftest import SayingPair
from tests.clients.test_terminal import PROMPT, chatting
from tests.e2e.test_abilities import CONTENT, THOUGHT
from tests.support.cluster import ClusterMember
from tests.support.terminal import CTRL_D, read

BEGINS, ENDS = "Thinking...", "...done thinking."
"""What stock's command line writes around thoughts."""


@pytest.fixture(scope="module")
def thinker(pair: SayingPair) -> Iterator[tuple[ClusterMember, str]]:
    with pair.asked(pair.thinking) as asked:
        yield asked


@pytest.mark.parametrize("flag", ["--think", "--think=true", "--verbose"])
def test_thoughts_when_wanted_or_nothing_is_said_then_before_the_answer(
    thinker: tuple[ClusterMember, str], flag: str
) -> None:
    member, model = thinker
    said = member.ollama("run", flag, model, "Say it!", check=True).stdout
    assert said.startswith(f"{BEGINS}\n{THOUGHT}\n{ENDS}\n\n{CONTENT}\n")


def test_thoughts_when_hidden_then_the_answer_alone(thinker: tuple[ClusterMember, str]) -> None:
    member, model = thinker
    said = member.ollama("run", "--hidethinking", model, "Say it!", check=True).stdout
    assert said.startswith(f"{CONTENT}\n")
    assert THOUGHT not in said


def test_thoughts_when_set_at_the_prompt_then_as_stock_has_it_and_a_level_is_refused_in_words(
    thinker: tuple[ClusterMember, str],
) -> None:
    with chatting(*thinker) as terminal:
        terminal.until(PROMPT)
        for typed, shown in (
            ("/set think", "Set 'think' mode."),
            ("Say it!", ENDS),
            ("/set think high", "Set 'think' mode to 'high'."),
            ("Say it!", 'think value "high" is not supported'),
            ("/set think", "Set 'think' mode."),
            ("Say it!", CONTENT),
        ):
            terminal.type(typed + "\r")
            terminal.until("(?s)" + typed.split()[-1] + "!?")
            assert shown in " ".join(read(terminal.until(PROMPT))), typed
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
