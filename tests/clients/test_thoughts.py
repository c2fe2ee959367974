"""A model that thinks before it answers, said by a ring of real processes, at the stock command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.clients.test_terminal import PROMPT, chatting
from tests.e2e.test_abilities import CONTENT, SAID, SPEAKS_OF, THOUGHT, formed
from tests.support.cluster import ClusterMember, make_cluster
from tests.support.saying import TEMPLATE, saying_folder
from tests.support.terminal import CTRL_D, read
from tests.support.vocabularies import vocabulary

BEGINS, ENDS = "Thinking...", "...done thinking."
"""What stock's command line writes around thoughts."""


@pytest.fixture(scope="module")
def thinker(clients: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterMember, str]]:
    """A member that is not the head, and the model's name."""
    below = tmp_path_factory.mktemp("thoughts")
    folder: Path = vocabulary(below / "thinking", "byte_level")
    ids = Tokenizer.load(folder).backend.encode(SAID, add_special_tokens=False).ids
    saying_folder(folder, ids, template=SPEAKS_OF + TEMPLATE)
    with make_cluster("ada", "bob", folders=(folder,), below=below / "cluster") as made:
        yield made.members[1], formed(made, folder)


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
