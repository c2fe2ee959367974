"""What a rendezvous is told at start: where to listen, its certificate, and the limits it keeps."""

from dataclasses import dataclass, field
from pathlib import Path

from rendezvous.certificate import KeyPair

PROTOCOL = 1
DEFAULT_PORT = 7770
DEFAULT_FOLDER = Path.home() / ".kafila" / "rendezvous"
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on all that strangers can make the server hold or do. Times in seconds."""

    body_bytes: int = 256 * 1024
    rooms: int = 20_000
    rooms_per_address: int = 64  # open at once
    rooms_per_address_and_minute: int = 60
    joins_per_address_and_minute: int = 120  # those that find no room count too, so numbers can't be tried out
    mailboxes_per_room: int = 128
    posts_per_mailbox_and_minute: int = 3_000
    queued_events: int = 1_024  # a mailbox
    queued_bytes: int = 4 * 1024 * 1024  # a mailbox
    queued_bytes_in_all: int = 256 * 1024 * 1024
    idle_ttl_s: float = 60.0  # a mailbox that nobody attends
    cool_down_s: float = 600.0  # before a room's number is given out again


@dataclass(frozen=True, slots=True)
class Config:
    """`key_pair` None means no TLS, for loopback and private networks only; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    key_pair: KeyPair | None = None
    limits: Limits = field(default_factory=Limits)
