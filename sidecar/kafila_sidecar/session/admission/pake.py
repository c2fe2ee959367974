"""Proving the code: SPAKE2 between newcomer and host, with key confirmation, the newcomer first.

Who guesses must commit to the guess (by its confirmation) before it learns whether it was right, and the host
counts every exchange from its reply on, until it is confirmed: aborting makes no guess free.

  newcomer                       host
     start   X                ->
                              <- reply    Y
     confirm MAC(newcomer)    ->
                              <- offer    sealed, holds MAC(host)
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from spake2 import SPAKE2_A, SPAKE2_B
from spake2.ed25519_basic import NotOnCurve
from spake2.spake2 import SPAKEError

from kafila_sidecar.errors import Denied, InvalidInput

MESSAGE_BYTES = 33

Entropy = Callable[[int], bytes]

_NEWCOMER, _HOST = b"kafila newcomer", b"kafila admitter"
WRONG_WORDS = "the code's words do not match, or are an old code's: ask for the code again, and mind each word"

# Both machines: (state, what happens) -> next state. Any other pair is refused.
NEWCOMER = {
    ("new", "start"): "started",
    ("started", "reply"): "confirming",
    ("confirming", "right mac"): "proved",
    ("confirming", "wrong mac"): "failed",
}
HOST = {
    ("new", "start"): "challenged",
    ("challenged", "right mac"): "proved",
    ("challenged", "wrong mac"): "failed",
}


@dataclass(frozen=True, slots=True)
class Keys:
    """What both sides hold after SPAKE2; equal only if the words were. 32 bytes each."""

    newcomer_mac: bytes = field(repr=False)
    host_mac: bytes = field(repr=False)
    newcomer_seal: bytes = field(repr=False)
    host_seal: bytes = field(repr=False)


class GuessStore(Protocol):
    """Where the number of unconfirmed exchanges outlives the process."""

    def load(self) -> int: ...

    def save(self, count: int) -> None: ...


class Guesses:
    """Counts exchanges that the host answered and nobody confirmed; each may have been a guess."""

    def __init__(self, store: GuessStore) -> None:
        self._store = store
        self.count = store.load()

    def begin(self) -> None:
        """Counts one more, and stores it before the host answers."""
        self.count += 1
        self._store.save(self.count)

    def renew(self) -> None:
        """There is a new code, which nobody has guessed yet."""
        self.count = 0
        self._store.save(0)

    def confirmed(self) -> None:
        """Takes back the one that turned out to know the code."""
        self.count -= 1
        self._store.save(self.count)


class NewcomerPake:
    """The side that types the code."""

    def __init__(self, password: bytes, room: int, entropy: Entropy) -> None:
        self.state = "new"
        self._room = room
        self._spake = SPAKE2_A(password, idA=_NEWCOMER, idB=_HOST, entropy_f=entropy)
        self._sent = b""
        self._keys: Keys | None = None

    @property
    def keys(self) -> Keys:
        return _known(self._keys)

    def start(self) -> bytes:
        """The first message, 33 bytes."""
        self.state = _next(NEWCOMER, self.state, "start")
        self._sent = bytes(self._spake.start())
        return self._sent

    def receive_reply(self, message: bytes, protocol: int) -> bytes:
        """Takes the host's message, and the protocol that both speak; returns this side's confirmation.

        Raises InvalidInput for a bad point.
        """
        self.state = _next(NEWCOMER, self.state, "reply")
        shared = _finish(self._spake, message)
        self._keys = _derive(shared, protocol, self._room, self._sent, message)
        return self.keys.newcomer_mac

    def receive_mac(self, mac: bytes) -> None:
        """Checks the host's confirmation; raises Denied when it did not know the words."""
        self.state = _next(NEWCOMER, self.state, _compared(mac, self.keys.host_mac))
        if self.state == "failed":
            raise Denied(WRONG_WORDS)


class HostPake:
    """The side that gave the code out; one object for each exchange."""

    def __init__(self, password: bytes, room: int, guesses: Guesses, entropy: Entropy) -> None:
        self.state = "new"
        self._room = room
        self._guesses = guesses
        self._spake = SPAKE2_B(password, idA=_NEWCOMER, idB=_HOST, entropy_f=entropy)
        self._keys: Keys | None = None

    @property
    def keys(self) -> Keys:
        return _known(self._keys)

    def receive_start(self, message: bytes, protocol: int) -> bytes:
        """Takes the newcomer's message, and the protocol that both speak; returns the reply, 33 bytes. Counts a guess
        first."""
        self.state = _next(HOST, self.state, "start")
        self._guesses.begin()
        reply = bytes(self._spake.start())
        self._keys = _derive(_finish(self._spake, message), protocol, self._room, message, reply)
        return reply

    def receive_confirm(self, mac: bytes) -> bytes:
        """Checks the newcomer's confirmation; returns this side's. Raises Denied for wrong words."""
        self.state = _next(HOST, self.state, _compared(mac, self.keys.newcomer_mac))
        if self.state == "failed":
            raise Denied(WRONG_WORDS)
        self._guesses.confirmed()
        return self.keys.host_mac


def _next(table: dict[tuple[str, str], str], state: str, event: str) -> str:
    if (state, event) not in table:
        raise InvalidInput(f"{event} does not belong to the state {state} of a proof of the code")
    return table[state, event]


def _known(keys: Keys | None) -> Keys:
    if keys is None:
        raise InvalidInput("the other side of this proof of the code has not been heard yet")
    return keys


def _finish(spake: SPAKE2_A | SPAKE2_B, message: bytes) -> bytes:
    if len(message) != MESSAGE_BYTES:
        raise InvalidInput(f"a message of the proof has {len(message)} bytes, not {MESSAGE_BYTES}")
    try:
        return bytes(spake.finish(message))
    except (SPAKEError, NotOnCurve, ValueError) as error:
        raise InvalidInput("a message of the proof is no point of its curve") from error


def _derive(shared: bytes, protocol: int, room: int, newcomer_message: bytes, host_message: bytes) -> Keys:
    """HKDF-SHA256 (RFC 5869) of SPAKE2's key, salted with the transcript's hash."""
    transcript = b"kafila admission" + protocol.to_bytes(4, "big") + room.to_bytes(4, "big")
    salt = hashlib.sha256(transcript + newcomer_message + host_message).digest()
    material: bytes = HKDF(algorithm=SHA256(), length=128, salt=salt, info=b"kafila admission keys").derive(shared)
    confirm_newcomer, confirm_host, seal_newcomer, seal_host = (
        material[start : start + 32] for start in range(0, 128, 32)
    )
    return Keys(
        newcomer_mac=hmac.digest(confirm_newcomer, salt, "sha256"),
        host_mac=hmac.digest(confirm_host, salt, "sha256"),
        newcomer_seal=seal_newcomer,
        host_seal=seal_host,
    )


def _compared(mac: bytes, expected: bytes) -> str:
    return "right mac" if hmac.compare_digest(mac, expected) else "wrong mac"
