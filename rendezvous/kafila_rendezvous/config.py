"""What a rendezvous is told at start: where to listen, its certificate, and the limits it keeps."""

from dataclasses import dataclass, field
from pathlib import Path

from kafila_rendezvous.certificate import KeyPair

PROTOCOL = 1
DEFAULT_PORT = 7770
DEFAULT_FOLDER = Path.home() / ".kafila" / "rendezvous"
WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class RendezvousLimits:
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
    idle_ttl_s: float = 60.0  # a mailbox that nobody attends; so long after a restart may its owner come back
    cool_down_s: float = 600.0  # before a room's number is given out again
    greets_per_address_and_minute: int = 120
    udp_requests_per_address_and_s: float = 50.0  # STUN, and binding at the relay; what the relay carries has its own
    udp_requests_per_address_at_once: int = 300
    relay_tokens_per_mailbox_and_minute: int = 600
    relay_token_ttl_s: float = 3_600.0
    relay_channels: int = 10_000
    relay_channels_per_room: int = 512
    relay_ends_per_address: int = 256
    relay_idle_s: float = 45.0  # an end that was not bound again; members do so every 10 s
    relay_bytes_per_s: int = 8 * 1024 * 1024  # an end
    relay_streams_per_address: int = 16


@dataclass(frozen=True, slots=True)
class RendezvousConfig:
    """`key_pair` None means no TLS, for loopback and private networks only; port 0 takes a free one.

    `udp_port` None means the number of the TCP port, and whatever is free if that was left open too. The next port is
    used as well. `alternate` is a second address of this machine; it needs `host` to name the first one.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    udp_port: int | None = None
    alternate: str | None = None
    key_pair: KeyPair | None = None
    limits: RendezvousLimits = field(default_factory=RendezvousLimits)
