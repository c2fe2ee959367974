"""The relay's core and two members with tokens, for tests; requests are built here byte by byte."""

import hashlib
import hmac
import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.relay import Relay, Source
from kafila_rendezvous.udp.token import Tokens

ALICE, BOB = ("198.51.100.1", 4001), ("198.51.100.2", 4002)
BYTES_PER_S = 1_000_000


class RelayWorld:
    """`bind` does the whole exchange and returns the channel's number; None when it is refused."""

    def __init__(self, *, burst: int = 10_000, ttl_s: float = 3600.0, **limits: int) -> None:
        chance = random.Random(3)
        self.tokens = Tokens(secret=b"s" * 32, ttl_s=ttl_s, bytes_per_s=BYTES_PER_S)
        self.relay = Relay(
            tokens=self.tokens,
            limits=RendezvousLimits(**limits),
            pace=Pace(per_s=1.0, burst=burst, salt=b""),
            entropy=chance.randbytes,
        )

    def member(self, mailbox: int, peer: int, now: float = 0.0, serial: int = 1) -> "TokenHolder":
        token, key = self.tokens.issue(serial=serial, mailbox=mailbox, peer=peer, now=now)
        return TokenHolder(token, key)

    def bind(self, member: "TokenHolder", source: Source, now: float = 0.0) -> int | None:
        answer = self.ask(member.request(bytes(16)), source, now)
        assert answer[0] == 10, answer.hex()
        answer = self.ask(member.request(answer[9:]), source, now)
        return int.from_bytes(answer[9:13], "big") if answer[0] == 11 else None

    def ask(self, datagram: bytes, source: Source, now: float = 0.0) -> bytes:
        sending = self.relay.receive(datagram, source, now)
        assert sending is not None
        assert sending[1] == source
        return bytes(sending[0])

    def carried(self, number: int, data: bytes, source: Source, now: float = 0.0) -> tuple[bytes, Source] | None:
        sending = self.relay.receive(struct.pack("!BI", 8, number) + data, source, now)
        return None if sending is None else (bytes(sending[0]), sending[1])


@dataclass
class TokenHolder:
    token: bytes
    key: bytes
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def request(self, cookie: bytes, number: int | None = None, transaction: bytes = b"transact") -> bytes:
        said = b"\x09" + transaction + struct.pack("!Q", next(self.numbers) if number is None else number)
        said += cookie + self.token
        return said + hmac.digest(self.key, said, hashlib.sha256)[:16]
