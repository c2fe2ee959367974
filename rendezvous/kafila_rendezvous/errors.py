"""The rendezvous' typed errors: each class carries the gRPC status that `server` answers with."""

from typing import ClassVar


class RendezvousError(Exception):
    """Base of every error that a caller of the rendezvous may see; the message is one sentence."""

    code: ClassVar[str] = "INTERNAL"


class Malformed(RendezvousError):
    """A field that no client of ours sends: too long, empty, out of range."""

    code = "INVALID_ARGUMENT"


class WrongProtocol(RendezvousError):
    """The caller speaks another version of this protocol."""

    code = "FAILED_PRECONDITION"


class Full(RendezvousError):
    """All places of a room are taken."""

    code = "FAILED_PRECONDITION"


class WrongSecret(RendezvousError):
    """The secret does not belong to the mailbox."""

    code = "PERMISSION_DENIED"


class Unknown(RendezvousError):
    """No such room or mailbox, or no longer."""

    code = "NOT_FOUND"


class LimitReached(RendezvousError):
    """A limit of `RendezvousLimits` is reached."""

    code = "RESOURCE_EXHAUSTED"


class Superseded(RendezvousError):
    """A newer stream attends the same mailbox."""

    code = "ABORTED"


class Vanished(RendezvousError):
    """The caller's connection has ended while it called."""

    code = "UNAVAILABLE"


class CannotServe(RendezvousError):
    """The server can't start: port taken, unreadable certificate, folder not writable."""

    code = "FAILED_PRECONDITION"
