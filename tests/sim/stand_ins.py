"""What the product finds in the place of a clock that goes by itself, of the way to a rendezvous, and of signatures."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from kafila_sidecar.errors import Denied
from kafila_sidecar.session.membership import identity
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace, enter_again, enter_room
from tests.sim import rendezvous
from tests.sim.clock import PROCESS, SimLoop, SimProcess
from tests.sim.rendezvous import SimMailbox, SimServer

_verify = identity.verify


class Signatures:
    """All that were given in a world: one is right if who has the key gave it for this. Everybody checks every message,
    which takes a real one longer than the rest of it."""

    def __init__(self) -> None:
        self._given: dict[bytes, tuple[bytes, bytes, bytes]] = {}  # whose, for which purpose, under what

    def sign(self, signer: Identity, purpose: bytes, message: bytes) -> bytes:
        """As `Identity.sign`."""
        given = signer.private_key.public_key().public_bytes_raw(), purpose, message
        signature = hashlib.blake2b(b"\0".join(given)).digest()
        self._given[signature] = given
        return signature

    def verify(self, key: Ed25519PublicKey, purpose: bytes, message: bytes, signature: bytes) -> None:
        """As the product's."""
        if self._given.get(signature) != (key.public_bytes_raw(), purpose, message):
            raise Denied(f"a signature over {purpose.decode('ascii')} is not its signer's")


@contextmanager
def standing_in(loop: SimLoop) -> Iterator[None]:
    """Meanwhile a seed replays: nobody in the product reads another clock than the loop's."""
    given = Signatures()
    with (
        _in_place_of("monotonic", time.monotonic, loop.monotonic),
        _in_place_of("verify", _verify, given.verify),
        _signing(given),
    ):
        yield


@contextmanager
def _signing(given: Signatures) -> Iterator[None]:
    real, Identity.sign = Identity.sign, lambda *said: given.sign(*said)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Identity.sign = real  # type: ignore[method-assign]


@contextmanager
def entering(server: SimServer) -> Iterator[None]:
    """Meanwhile rooms are entered at this server, by whichever machine does."""

    async def again(address: RendezvousAddress, place: MailboxPlace) -> SimMailbox:
        return await rendezvous.enter_again(server, _me(), place)

    async def by_number(address: RendezvousAddress, number: int) -> SimMailbox:
        return await rendezvous.enter(server, _me(), number)

    with _in_place_of("enter_again", enter_again, again), _in_place_of("enter_room", enter_room, by_number):
        yield


def _me() -> SimProcess:
    process = PROCESS.get()
    assert process is not None
    return process


@contextmanager
def _in_place_of(name: str, real: Callable[..., Any], other: Callable[..., Any]) -> Iterator[None]:
    """Wherever the product has it by this name."""
    product = [module for path, module in sys.modules.items() if path.startswith("kafila_sidecar.")]
    having = [vars(module) for module in product if vars(module).get(name) is real]
    for names in having:
        names[name] = other
    try:
        yield
    finally:
        for names in having:
            names[name] = real
