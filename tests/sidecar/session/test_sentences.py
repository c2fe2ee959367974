"""What people read about a session."""

import pytest

from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.sentences import doing


def said(state: State, *, wanted: int = 3, joining: str = "open", **changes: object) -> str:
    facts = {"present": ["ada"], "waiting": [], "progress": {}, **changes}
    return doing(state, wanted=wanted, joining=joining, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (said(State.FORMING), "waiting for 2 more members: pass the code on"),
        (said(State.FORMING, wanted=2), "waiting for 1 more member: pass the code on"),
        (said(State.FORMING, joining="locked"), "ollama session unlock"),
        (said(State.FORMING, joining="paused"), "ollama session code --new"),
        (said(State.FORMING, joining="unreachable"), "until the rendezvous answers again"),
        (said(State.FORMING, wanted=0), "pass the code on, then `ollama session start`"),
        (said(State.FORMING, wanted=0, joining="paused"), "guessed wrongly too often"),
        (said(State.FORMING, wanted=1, waiting=["ada"]), "measuring: ada"),
        (said(State.FORMING, shortage="8 GB short"), "8 GB short: waiting for another member, pass the code on"),
        (said(State.REPLANNING), "planning"),
        (said(State.LINKING, waiting=["ada to bob"]), "linking: ada to bob"),
        (said(State.FETCHING, progress={"bob": "loading", "ada": "ready"}), "bob is loading"),
        (said(State.READY, joining="locked"), "ready"),
        (said(State.REPLANNING, shortage="ada hears only 2 of 5 members"), "ada hears only 2 of 5 members"),
        (said(State.CLOSED), "closed"),
        (said(State.CLOSED, ending=Ending.LEFT), "closed: this machine left it"),
        (said(State.CLOSED, ending=Ending.REMOVED), "closed: this machine was removed"),
        (said(State.CLOSED, ending=Ending.LOST), "closed: the others may have gone on"),
        (said(State.CLOSED, ending=Ending.OVER), "closed: it is over"),
    ],
)
def test_doing_when_something_is_waited_for_then_it_says_what_and_what_to_do(sentence: str, words: str) -> None:
    assert words in sentence
