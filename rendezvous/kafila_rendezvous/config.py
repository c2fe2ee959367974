"""What a rendezvous is told at start: where to listen, its certificate, and the limits it keeps."""

from dataclasses import dataclass, field
from pathlib import Path

from kafila_rendezvous.certificate import KeyPair
from kafila_rendezvous.series import EVERY, Series

PROTOCOL = 1
DEFAULT_PORT = 7770
DEFAULT_FOLDER = Path.home() / ".kafila" / "rendezvous"
WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class RendezvousLimits:
    """Bounds on all that strangers can make the server hold or do. Times in seconds.

    An address is an IPv4 address or an IPv6 /64; a /56 may have twice as much, a /48 four times.
    """

    connections: int = 4_096  # or fewer, as the process' descriptors allow; the last eighth for networks without any
    connections_per_address: int = 128  # or a quarter of all
    connections_per_address_and_s: float = 10.0
    connections_per_address_at_once: int = 64
    strangers_at_once: int = 16  # connections that have not called yet; beyond it, so many an address:
    strangers_per_address: int = 2
    first_bytes_s: float = 5.0  # until a connection says anything
    first_call_s: float = 15.0  # until it calls, TLS and all
    idle_connection_s: float = 60.0  # without a call
    send_deadline_s: float = 20.0  # for one message that the other side does not read, or does not finish
    calls_per_address_and_s: float = 200.0
    calls_per_address_at_once: int = 2_000
    owed_bytes_per_connection: int = 1024 * 1024  # sent, and taken by no call yet
    owed_bytes_in_all: int = 128 * 1024 * 1024
    body_bytes: int = 256 * 1024
    rooms: int = 20_000  # the last eighth for networks that have none
    rooms_per_address: int = 64  # open at once
    rooms_per_address_and_minute: int = 60
    joins_per_address_and_minute: int = 120  # those that find no room count too, so numbers can't be tried out
    mailboxes: int = 50_000  # the last eighth for networks that have none
    mailboxes_per_address: int = 512
    mailboxes_per_room: int = 128
    posts_per_mailbox_and_minute: int = 3_000
    queued_events: int = 1_024  # a mailbox
    queued_bytes: int = 4 * 1024 * 1024  # a mailbox
    queued_bytes_per_address: int = 16 * 1024 * 1024  # posted from there, or news not read there; a body counts once
    queued_bytes_per_room: int = 32 * 1024 * 1024  # the last eighth for small mail of addresses that hold little
    queued_bytes_in_all: int = 256 * 1024 * 1024  # the same
    idle_ttl_s: float = 60.0  # a mailbox that nobody attends; so long after a restart may its owner come back
    rest_ttl_s: float = 7 * 86_400.0  # so long after everybody was lost may one who had a mailbox open a room again
    resting_rooms: int = 10_000
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
    relay_bytes_per_address_and_s: int = 32 * 1024 * 1024  # of all ends there; `--relay-rate`
    relay_streams_per_address: int = 16


@dataclass(frozen=True, slots=True)
class RendezvousConfig:
    """`key_pair` None means no TLS, for loopback and private networks only; port 0 takes a free one.

    `udp_port` None means the number of the TCP port, and whatever is free if that was left open too. The next port is
    used as well. `alternate` is a second address of this machine; it needs `host` to name the first one. `notes` is a
    file that tells the next run which mailboxes live; None: nobody comes back after a restart. At `metrics_port` this
    machine's Prometheus may ask; None: nowhere. `series`: which numbers rooms get.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    udp_port: int | None = None
    alternate: str | None = None
    key_pair: KeyPair | None = None
    notes: Path | None = None
    metrics_port: int | None = None
    series: Series = EVERY
    limits: RendezvousLimits = field(default_factory=RendezvousLimits)
