"""What a mailbox' stream tells."""

from dataclasses import dataclass

EVENT_BYTES = 64  # charged for an event beside its body


@dataclass(frozen=True, slots=True)
class Present:
    """First event of a stream: the other mailboxes that are attended."""

    mailboxes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A mailbox is attended from now on."""

    mailbox: int


@dataclass(frozen=True, slots=True)
class Departed:
    """A mailbox's stream ended, or its owner gave it up."""

    mailbox: int


@dataclass(frozen=True, slots=True)
class Mail:
    """One message from another mailbox of the room."""

    sender: int
    body: bytes


Event = Present | Arrived | Departed | Mail
