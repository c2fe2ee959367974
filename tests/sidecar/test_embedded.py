"""The rendezvous that a host embeds."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sidecar.embedded import EmbeddedRendezvous, _note
from sidecar.errors import KafilaError, Unavailable
from sidecar.session.postbox import open_room


async def test_start_when_asked_twice_at_once_then_one_rendezvous_that_answers(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=stack)
        (first, note), (second, _) = await asyncio.gather(embedded.start(), embedded.start())
        assert first == second
        assert first.fingerprint
        assert note
        postbox = await open_room(first)
        await postbox.aclose()
    with pytest.raises(Unavailable):
        await open_room(first)


async def test_start_when_its_key_can_not_be_kept_then_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "rendezvous").write_text("a file where the folder should be")
    async with AsyncExitStack() as stack:
        with pytest.raises(KafilaError) as refused:
            await EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=stack).start()
        assert refused.value.code == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    ("host", "says"),
    [("127.0.0.1", "only this machine"), ("192.168.1.5", "this network only"), ("8.8.8.8", "reachable from outside")],
)
def test_note_when_the_address_is_known_then_it_says_who_can_reach_it(host: str, says: str) -> None:
    assert says in _note(host)
