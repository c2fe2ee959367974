"""Finding a session by what a person calls it."""

from dataclasses import dataclass, field

import pytest

from kafila_sidecar.errors import InvalidInput, NotFound
from kafila_sidecar.session.lookup import find_session, session_with_id


@dataclass
class NamedTerms:
    model: str
    folder: bool = False


@dataclass
class NamedSession:
    id: str
    code: str
    model: str = "org/model"
    is_open: bool = True
    folder: bool = False
    ended: str = ""
    terms: NamedTerms = field(init=False)

    def __post_init__(self) -> None:
        self.terms = NamedTerms(self.model, self.folder)


ONE = NamedSession("aa11", "7-ocean-velvet-lamp@192.0.2.7:7770")
TWO = NamedSession("bb22", "8-zoo-zone-zero", model="other")
SAME_ROOM = NamedSession("cc33", "7-abandon-ability-able", model="third")
CLOSED = NamedSession("dd44", "9-zoo-zone-zero", is_open=False)
FOLDER = NamedSession("ee55", "5-zoo-zone-zero", model="My-Model", folder=True)
ALL = [ONE, TWO, SAME_ROOM, CLOSED]


@pytest.mark.parametrize(
    ("wanted", "sessions", "found"),
    [
        ("aa11", ALL, ONE),
        ("dd44", ALL, CLOSED),
        ("8", ALL, TWO),
        ("7-ocean-velvet-lamp", ALL, ONE),
        ("7 Ocean Velvet Lamp", ALL, ONE),
        ("8-ocean-velvet-lamp", ALL, TWO),  # its code before the present one
        ("org/model", ALL, ONE),
        ("model", ALL, ONE),
        ("/models/My Model", [ONE, FOLDER], FOLDER),
        ("", [TWO, CLOSED], TWO),
    ],
)
def test_find_session_when_called_by_any_name_then_found(
    wanted: str, sessions: list[NamedSession], found: NamedSession
) -> None:
    assert find_session(wanted, sessions) is found  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [("7", InvalidInput), ("7-zoo-zone-zero", InvalidInput), ("", InvalidInput), ("9", NotFound), ("zz", NotFound)],
)
def test_find_session_when_none_or_several_answer_then_told_in_words(wanted: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        find_session(wanted, ALL)  # type: ignore[type-var]


@pytest.mark.parametrize("wanted", ["7", "7-ocean-velvet-lamp", "org/model", "model", "aa1", "AA11", "", "zz"])
def test_session_with_id_when_named_as_people_do_then_there_is_none(wanted: str) -> None:
    with pytest.raises(NotFound):
        session_with_id(wanted, ALL)  # type: ignore[type-var]


def test_session_with_id_when_named_by_its_whole_id_then_found() -> None:
    assert session_with_id("aa11", ALL) is ONE  # type: ignore[type-var]


def test_find_session_when_the_last_one_has_ended_then_the_refusal_says_why() -> None:
    ended = NamedSession("ff66", "", is_open=False, ended="cyd was removed from the session")
    with pytest.raises(NotFound, match="its last one ended, since cyd was removed from the session"):
        find_session("", [ended])  # type: ignore[type-var]
