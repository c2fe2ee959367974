"""Keeps the NAT's mapping of the node's own socket, and notices when it changes. No I/O, no clock."""

from collections.abc import Callable

from aioice.stun import Class, Message, Method

from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.errors import BadDatagram

KEEP_S = 10.0  # NATs hold UDP for 30 s and more (RFC 4787 REQ-5)
RETRY_S = 1.0
TRIES = 3  # in a row, then only every KEEP_S
HASTY_S = 20.0  # after something has stopped working it is asked every RETRY_S for so long, since links wait 15 s


class MappedAddress:
    """Asks one STUN server again and again where it sees us. `entropy` gives 12 fresh random bytes.

    `blocked`: nothing came back by UDP until now, so that any answer is news.
    """

    def __init__(self, server: Address, *, blocked: bool, entropy: Callable[[], bytes], now: float) -> None:
        self._server = server
        self._blocked = blocked
        self._entropy = entropy
        self._mapped: Address | None = None
        self._due = now
        self._hasty_until = 0.0
        self._is_soon = False  # the next question is due sooner than KEEP_S after the last one
        self._open: set[bytes] = set()

    def receive(self, datagram: bytes, source: Address) -> bool:
        """Takes an answer; true when something is otherwise than before. Raises BadDatagram for any other message."""
        message = stun.parse(datagram)
        mapped = stun.mapped_address(message)
        if source != self._server or message.transaction_id not in self._open or mapped is None:
            raise BadDatagram(f"a STUN message from {source[0]} answers nothing that was asked")
        if self._is_soon:
            self._due += KEEP_S - RETRY_S
        self._is_soon, self._hasty_until = False, 0.0
        self._open.clear()
        is_news = self._blocked if self._mapped is None else mapped != self._mapped
        self._mapped, self._blocked = mapped, False
        return is_news

    def doubt(self, now: float) -> None:
        """Something that worked has stopped: the next question is due at once, unless one is on its way."""
        if now >= self._hasty_until:
            self._due = now
        self._hasty_until = now + HASTY_S

    def next_timer(self) -> float:
        """When `handle_timer` is due."""
        return self._due

    def handle_timer(self, now: float) -> list[tuple[bytes, Address]]:
        """The question that is due, if it is."""
        if now < self._due:
            return []
        if len(self._open) >= TRIES:
            self._open.clear()
        transaction = self._entropy()
        self._open.add(transaction)
        self._is_soon = len(self._open) < TRIES or now < self._hasty_until
        self._due = now + (RETRY_S if self._is_soon else KEEP_S)
        return [(bytes(Message(Method.BINDING, Class.REQUEST, transaction)), self._server)]
