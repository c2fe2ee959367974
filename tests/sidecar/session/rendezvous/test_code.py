"""Codes and addresses as people type them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address
from kafila_sidecar.session.rendezvous.code import Code, draw_words, parse_code

PIN = "abcdefghij234567klmn"


@pytest.mark.parametrize(
    "text",
    [
        "7-ocean-velvet-lamp",
        "  7 Ocean  VELVET lamp\n",
        "7-ocean_velvet.lamp",
        "7 - ocean - velvet - lamp",
        "7, ocean, velvet, lamp",
        "7–ocean—velvet‐lamp",
        "“7-ocean-velvet-lamp”",
        "`7-ocean-velvet-lamp`",
        "\u2066'7-ocean-\u200bvelvet-lamp'\ufeff",
        "7-ocean-vel\u00advet-lamp",
        "ollama run --session 7-ocean-velvet-lamp",
        "$ kafila run --yes --session=7-ocean-velvet-lamp --memory 12GB",
        "ollama session join 7 ocean velvet lamp --yes",
        "On the other machines: ollama run --session 7-ocean-velvet-lamp",
        "7\u2212ocean\uff0dvelvet\u2011lamp",
        "\uff17-ocean-velvet-lamp",
        "<7-ocean-velvet-lamp>",
        "(7-ocean-velvet-lamp).",
        "**7-ocean-velvet-lamp**!",
        "7\\-ocean\\-velvet\\-lamp",
        "code: 7-ocean-velvet-lamp",
        "7-océan-velvet-lamp",
        "7-oce\u0301an-velvet-lamp",
    ],
)
def test_parse_code_when_case_and_spaces_differ_then_same_code(text: str) -> None:
    assert parse_code(text) == Code(7, ("ocean", "velvet", "lamp"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"192.0.2.7:7770#{PIN}", RendezvousAddress("192.0.2.7", 7770, PIN)),
        (f"192.0.2.7:7770#{PIN.upper()}", RendezvousAddress("192.0.2.7", 7770, PIN)),
        ("rendezvous.example.org:443", RendezvousAddress("rendezvous.example.org", 443)),
        (f"[2001:db8::1]:443#{PIN}", RendezvousAddress("2001:db8::1", 443, PIN)),
        ("grpc+insecure://127.0.0.1:7770", RendezvousAddress("127.0.0.1", 7770, insecure=True)),
        ("grpc+insecure://localhost:7770", RendezvousAddress("localhost", 7770, insecure=True)),
        ("grpc+insecure://192.168.1.9:7770", RendezvousAddress("192.168.1.9", 7770, insecure=True)),
        ("grpc+insecure://[fe80::1]:7770", RendezvousAddress("fe80::1", 7770, insecure=True)),
    ],
)
def test_code_when_it_carries_an_address_then_text_and_back(text: str, address: RendezvousAddress) -> None:
    code = parse_code(f"7-ocean-velvet-lamp@{text}")
    assert code == Code(7, ("ocean", "velvet", "lamp"), address)
    assert parse_code(str(code)) == code
    assert parse_address(str(address)) == address
    assert code.short == "7-ocean-velvet-lamp"


def test_parse_code_when_a_whole_command_is_pasted_then_its_address_is_kept() -> None:
    pasted = f"ollama run --session “7–ocean–velvet–lamp@192.0.2.7:7770#{PIN}” --yes 'What is that?'"
    assert parse_code(pasted) == Code(7, ("ocean", "velvet", "lamp"), RendezvousAddress("192.0.2.7", 7770, PIN))


@pytest.mark.parametrize("after", [".", ",", ")", ">.", "!", " and hurry"])
def test_parse_code_when_a_sentence_goes_on_after_the_address_then_without_that(after: str) -> None:
    code = Code(7, ("ocean", "velvet", "lamp"), RendezvousAddress("192.0.2.7", 7770, PIN))
    assert parse_code(f"{code}{after}") == code


@given(st.text(max_size=60))
def test_parse_code_when_anything_is_pasted_then_a_code_or_invalid_input(text: str) -> None:
    with suppress(InvalidInput):
        code = parse_code(text)
        assert parse_code(str(code)) == code


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("@192.0.2.7:1", "empty"),
        ("ocean-velvet-lamp", "not with a number"),
        ("٣-ocean-velvet-lamp", "not with a number"),
        ("0-ocean-velvet-lamp", "not between 1"),
        ("99999999999999999999-ocean-velvet-lamp", "not between 1"),
        ("7", "0 words"),
        ("7-ocean-velvet", "2 words"),
        ("7-ocean-velvet-lamp-lamp", "4 words"),
        ("7-ocean-velvt-lamp", "did you mean 'velvet'"),
        ("7-ocean-elvet-lamp", "did you mean 'velvet'"),
        ("7-ocean-cheery-lamp", "did you mean 'cherry', 'celery' or 'theory'"),
        ("7-ocaen-velvt-lamp", "'ocaen' is not .*'ocean'.*; 'velvt' is not .*'velvet'"),
        ("7-ocean-velvet-xqzw", "ask for the code again"),
        ("7-ocean-velvet-lamp@", "host:port"),
        ("7-ocean-velvet-lamp@192.0.2.7", "host:port"),
        ("7-ocean-velvet-lamp@192.0.2.7:0", "port 0"),
        ("7-ocean-velvet-lamp@192.0.2.7:70000", "port 70000"),
        ("7-ocean-velvet-lamp@192.0.2.7:7770#", "fingerprint"),
        ("7-ocean-velvet-lamp@192.0.2.7:7770#0189", "fingerprint"),
        ("7-ocean-velvet-lamp@grpc+insecure://192.0.2.7:7770", "loopback and private"),
        ("7-ocean-velvet-lamp@grpc+insecure://example.org:7770", "loopback and private"),
        (f"7-ocean-velvet-lamp@grpc+insecure://127.0.0.1:7770#{PIN}", "no certificate"),
    ],
)
def test_parse_code_when_wrong_then_one_sentence_names_it(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        parse_code(text)


def test_code_when_shown_in_a_log_then_words_are_hidden() -> None:
    assert "ocean" not in repr(Code(7, ("ocean", "velvet", "lamp")))


def test_code_when_it_has_an_address_then_a_configured_one_gives_way() -> None:
    own, other = RendezvousAddress("192.0.2.7", 1), RendezvousAddress("192.0.2.8", 1)
    assert Code(7, ("ocean", "velvet", "lamp"), own).at(other).address == own
    assert Code(7, ("ocean", "velvet", "lamp")).at(other).address == other


def test_draw_words_when_drawn_often_then_known_and_different() -> None:
    drawn = {draw_words() for _ in range(50)}
    assert len(drawn) == 50
    for words in drawn:
        assert len(set(words)) == len(words)
        assert parse_code("-".join(("1", *words))).words == words
