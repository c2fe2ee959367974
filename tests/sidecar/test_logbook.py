"""The log that is kept, and what is not in it."""

import json
import logging
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.logbook import FILE, LARGEST_FILE_BYTES, OLD_FILES, LogBook, scrubbed

CODE = "7-ocean-velvet-lamp"
SECRETS = {
    "a code": CODE,
    "a whole code": f"{CODE}@rv.example.org:7770#6aviinzr5n6z3x35c6c2",
    "an address": "192.0.2.17",
    "a place": "198.51.100.4:38329",
    "an IPv6 address": "2001:db8::17",
    "an IPv6 place": "[2001:db8:1:2:3:4:5:6]:7770",
    "a host": "rv.example.org:7770",
    "a link": "https://ann:pass@hub.example/x?token=1",
    "a key": "5b6f9b1de3a7c4f2" * 4,
    "a token": "hf_AbCdEfGhIjKlMnOpQrSt1234",
    "a fingerprint": "#6aviinzr5n6z3x35c6c2",
    "a member": "Anna's Mac",
    "another member": "büro-2",
}
NAMES = ("Anna's Mac", "büro-2", "", "Anna")


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in (folder / FILE).read_text(encoding="utf-8").splitlines()]


class Logging:
    """A logger of its own with a book in a folder."""

    def __init__(self, folder: Path) -> None:
        self.book = LogBook(folder, lambda: NAMES)
        self.log = logging.Logger("kafila_sidecar.net")
        self.log.addHandler(self.book)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logging]:
    logging_here = Logging(tmp_path / "logs")
    yield logging_here
    logging_here.book.close()


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("said", ["it is {}", "({}): no", "'{}' can't be reached", "server={} code=UNAVAILABLE", "{}"])
def test_scrubbed_has_no_secret_wherever_it_stands(said: str, secret: str) -> None:
    assert secret not in scrubbed(said.format(secret), NAMES)


@given(st.sampled_from(list(SECRETS.values())), st.sampled_from(list(SECRETS.values())), st.sampled_from(" ,;()'\"\n"))
def test_scrubbed_when_secrets_stand_side_by_side_then_none_is_left(one: str, other: str, between: str) -> None:
    left = scrubbed(f"{one}{between}{other}", NAMES)
    assert one not in left
    assert other not in left


@pytest.mark.parametrize(
    "said",
    [
        "path_chosen path=direct rtt_s=0.0200",
        "weights_damaged file=model-00001-of-00004.safetensors start=0 end=4096",
        "plan_changed epoch=3 moves=''",
        "call_refused code=FAILED_PRECONDITION",
        "session_models_not_reconciled_after_all",
        "version 0.1.0.dev577",
    ],
)
def test_scrubbed_leaves_what_says_nothing_of_anybody(said: str) -> None:
    assert scrubbed(said, NAMES) == said


def test_book_when_a_member_is_named_then_that_is_left_out_even_if_nobody_knows_it(
    tmp_path: Path, logs: Logging
) -> None:
    logs.log.info("path_chosen peer=%s path=%s rtt_s=%.4f", "Carl the third", "relay", 0.25)
    logs.log.warning("rules_broken member=%s reason=%s", "Dora", "Anna's Mac sent nonsense")
    first, second = entries(tmp_path / "logs")
    assert first["said"] == "path_chosen peer=<member> path=relay rtt_s=0.2500"
    assert second["said"] == "rules_broken member=<member> reason=<member> sent nonsense"
    assert (first["level"], second["level"], first["from"], first["where"]) == (
        *("INFO", "WARN", "sidecar"),
        "kafila_sidecar.net",
    )
    assert first["at"].endswith("Z")


def test_book_when_an_error_is_logged_then_its_traceback_is_kept_without_secrets(tmp_path: Path, logs: Logging) -> None:
    try:
        raise ValueError(" ".join(SECRETS.values()))
    except ValueError:
        logs.log.error("call_failed", exc_info=sys.exc_info())
    (entry,) = entries(tmp_path / "logs")
    assert "ValueError" in entry["traceback"]
    assert [name for name, secret in SECRETS.items() if secret in entry["traceback"]] == []


def test_book_is_for_this_user_alone(tmp_path: Path, logs: Logging) -> None:
    folder = tmp_path / "logs"
    logs.log.info("x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600


def test_book_when_much_is_said_then_its_size_is_bounded(tmp_path: Path, logs: Logging) -> None:
    logs.book.maxBytes = 2000
    for number in range(200):
        logs.log.info("event number=%d text=%s", number, "x y " * 20)
    files = sorted(one.name for one in (tmp_path / "logs").iterdir())
    assert files == [FILE, *(f"{FILE}.{number}" for number in range(1, OLD_FILES + 1))]
    assert all(one.stat().st_size <= 2000 for one in (tmp_path / "logs").iterdir())
    assert LARGEST_FILE_BYTES == 4 << 20


def test_book_when_it_can_not_be_written_any_more_then_the_program_goes_on(tmp_path: Path, logs: Logging) -> None:
    logs.book.maxBytes = 1
    tmp_path.joinpath("logs", f"{FILE}.1").mkdir()
    tmp_path.joinpath("logs", f"{FILE}.1", "in the way").touch()
    logs.log.info("event")
    logs.log.info("event")


def test_book_when_the_message_is_written_wrongly_then_the_program_goes_on(tmp_path: Path, logs: Logging) -> None:
    logs.log.info("event peer=%d", 7)
    logs.log.info("event peer=%s of=%d", "Dora", 3)
    assert entries(tmp_path / "logs")[1]["said"] == "event peer=<member> of=3"
