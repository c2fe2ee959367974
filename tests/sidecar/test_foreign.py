"""Text of other machines never commands a terminal."""

import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import BY_CODE, from_code
from kafila_sidecar.foreign import HarmlessFormatter, line

COMMANDS = ("Cc", "Cf", "Cs", "Zl", "Zp")
HOSTILE = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x1b\x07\x9b\x00\x7f\n\r\t\u202e\u200b\u2028\u2029\ufeff"),
        st.characters(max_codepoint=0x9F),
    )
)


def is_harmless(text: str) -> bool:
    return not any(unicodedata.category(letter) in COMMANDS for letter in text)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("mini was lost: ask again", "mini was lost: ask again"),
        ("学习 naïve ½ 🐫", "学习 naïve ½ 🐫"),
        ("\x1b[2J\x1b[HReady", "\ufffd[2J\ufffd[HReady"),
        ("one\r\nReady. Chat with: x", "one  Ready. Chat with: x"),
        ("csi \x9b31m del \x7f", "csi \ufffd31m del \ufffd"),
        ("ann\u202egpj.exe \u200b\u2028", "ann\ufffdgpj.exe \ufffd "),
    ],
)
def test_line_when_text_is_foreign_then_a_terminal_only_shows_it(said: str, shown: str) -> None:
    assert line(said) == shown


@given(HOSTILE, st.integers(min_value=0, max_value=50))
def test_line_of_whatever_is_harmless_short_and_stays_so(said: str, most: int) -> None:
    shown = line(said, most)
    assert is_harmless(shown)
    assert len(shown) == min(len(said), most)
    assert line(shown, most) == shown


@given(st.sampled_from([*BY_CODE, "NO_SUCH_CODE"]), HOSTILE)
def test_from_code_whatever_was_said_gives_a_harmless_sentence(code: str, said: str) -> None:
    assert is_harmless(str(from_code(code, said)))


@given(HOSTILE)
def test_log_whatever_it_quotes_is_one_harmless_line(said: str) -> None:
    record = logging.LogRecord("kafila", logging.INFO, "file", 1, "refused reason=%s", (said,), None)
    assert is_harmless(HarmlessFormatter("%(levelname)s %(message)s").format(record))


@given(HOSTILE)
def test_log_of_an_error_whatever_it_quotes_is_harmless_lines(said: str) -> None:
    try:
        raise ValueError(said)
    except ValueError as error:
        record = logging.LogRecord("kafila", logging.ERROR, "file", 1, "failed", (), (ValueError, error, None))
    written = HarmlessFormatter("%(message)s").format(record)
    assert is_harmless(written.replace("\n", ""))
    assert "ValueError" in written
