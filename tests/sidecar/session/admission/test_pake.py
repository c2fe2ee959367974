"""Proving the code: equal words agree, other words learn nothing, and every guess is counted."""

from pathlib import Path

import pytest

from kafila_sidecar.errors import Denied, InvalidInput, Refused
from kafila_sidecar.session.admission.guesses import FileGuesses
from kafila_sidecar.session.admission.pake import MESSAGE_BYTES, Guesses, HostPake, NewcomerPake
from tests.sidecar.session.trust_world import MemoryStore, entropy

WORDS = b"ocean-velvet-lamp"


def sides(
    *, newcomer_words: bytes = WORDS, newcomer_room: int = 7, store: MemoryStore | None = None
) -> tuple[NewcomerPake, HostPake, Guesses]:
    guesses = Guesses(store or MemoryStore())
    newcomer = NewcomerPake(newcomer_words, newcomer_room, entropy("newcomer"))
    return newcomer, HostPake(WORDS, 7, guesses, entropy("host")), guesses


def test_proof_when_words_agree_then_keys_agree_and_no_guess_is_counted() -> None:
    newcomer, host, guesses = sides()
    confirmation = newcomer.receive_reply(host.receive_start(newcomer.start(), 1), 1)
    assert guesses.count == 1
    newcomer.receive_mac(host.receive_confirm(confirmation))
    assert (newcomer.state, host.state) == ("proved", "proved")
    assert newcomer.keys == host.keys
    assert guesses.count == 0
    keys = newcomer.keys
    assert len({keys.newcomer_mac, keys.host_mac, keys.newcomer_seal, keys.host_seal}) == 4


@pytest.mark.parametrize(("words", "room"), [(b"ocean-velvet-lump", 7), (b"", 7), (WORDS, 8)])
def test_proof_when_words_or_room_differ_then_denied_and_counted(words: bytes, room: int) -> None:
    newcomer, host, guesses = sides(newcomer_words=words, newcomer_room=room)
    confirmation = newcomer.receive_reply(host.receive_start(newcomer.start(), 1), 1)
    with pytest.raises(Denied):
        host.receive_confirm(confirmation)
    assert guesses.count == 1
    with pytest.raises(InvalidInput):
        host.receive_confirm(confirmation)


def test_proof_when_newcomer_stops_after_the_reply_then_it_was_counted_before_the_reply_was_made() -> None:
    store = MemoryStore(4)
    newcomer, host, _ = sides(store=store)
    host.receive_start(newcomer.start(), 1)
    assert store.saved == [4, 5]
    assert Guesses(store).count == 5


def test_proof_when_rendezvous_sits_in_the_middle_without_the_words_then_newcomer_is_not_fooled() -> None:
    newcomer, _, _ = sides()
    middle = HostPake(b"other-other-other", 7, Guesses(MemoryStore()), entropy("middle"))
    newcomer.receive_reply(middle.receive_start(newcomer.start(), 1), 1)
    with pytest.raises(Denied):
        newcomer.receive_mac(middle.keys.host_mac)


def test_proof_when_confirmation_is_reflected_then_denied() -> None:
    newcomer, host, _ = sides()
    confirmation = newcomer.receive_reply(host.receive_start(newcomer.start(), 1), 1)
    with pytest.raises(Denied):
        newcomer.receive_mac(confirmation)


@pytest.mark.parametrize(
    "message",
    [b"", bytes(MESSAGE_BYTES), b"A" + bytes(32), b"B" + bytes(32), b"A" + b"\xff" * 32, bytes(MESSAGE_BYTES + 1)],
)
def test_start_when_message_is_no_point_then_invalid_and_counted(message: bytes) -> None:
    _, host, guesses = sides()
    with pytest.raises(InvalidInput):
        host.receive_start(message, 1)
    assert guesses.count == 1


def test_reply_when_own_message_comes_back_then_invalid() -> None:
    newcomer, _, _ = sides()
    with pytest.raises(InvalidInput):
        newcomer.receive_reply(newcomer.start(), 1)


def test_machines_when_steps_come_out_of_order_then_invalid() -> None:
    newcomer, host, _ = sides()
    with pytest.raises(InvalidInput):
        newcomer.receive_reply(bytes(33), 1)
    with pytest.raises(InvalidInput):
        newcomer.receive_mac(bytes(32))
    with pytest.raises(InvalidInput):
        host.receive_confirm(bytes(32))
    first = newcomer.start()
    with pytest.raises(InvalidInput):
        newcomer.start()
    host.receive_start(first, 1)
    with pytest.raises(InvalidInput):
        host.receive_start(first, 1)


def test_file_guesses_when_process_starts_again_then_count_goes_on(tmp_path: Path) -> None:
    folder = tmp_path
    Guesses(FileGuesses(folder)).begin()
    Guesses(FileGuesses(folder)).begin()
    assert Guesses(FileGuesses(folder)).count == 2
    (folder / "guesses").write_text("many")
    with pytest.raises(Refused):
        FileGuesses(folder).load()
    with pytest.raises(Refused):
        FileGuesses(folder / "guesses" / "below a file").save(1)
