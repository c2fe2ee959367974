"""The sidecar's typed errors: each class carries the gRPC status that `service` answers with.

A message is one sentence for people: who, how much, and what to do.
"""

from typing import ClassVar

from kafila_sidecar.foreign import line


class KafilaError(Exception):
    """Base of every error that may cross a package."""

    code: ClassVar[str] = "INTERNAL"


class InvalidInput(KafilaError):
    """Malformed input, told at the edge where it came in."""

    code = "INVALID_ARGUMENT"


class Refused(KafilaError):
    """The request is well-formed and can't be met in the present state: too large, full, wrong version."""

    code = "FAILED_PRECONDITION"


class Denied(KafilaError):
    """A proof failed: a wrong code, an unknown certificate, a gated repository."""

    code = "PERMISSION_DENIED"


class NotFound(KafilaError):
    """No such session, model, room or file."""

    code = "NOT_FOUND"


class Exhausted(KafilaError):
    """A bounded queue or quota is full; trying again later may help."""

    code = "RESOURCE_EXHAUSTED"


class Unavailable(KafilaError):
    """Somebody needed for this can't be reached or was lost."""

    code = "UNAVAILABLE"


class TimedOut(KafilaError):
    """A deadline passed."""

    code = "DEADLINE_EXCEEDED"


BY_CODE: dict[str, type[KafilaError]] = {
    cls.code: cls for cls in (InvalidInput, Refused, Denied, NotFound, Exhausted, Unavailable, TimedOut, KafilaError)
}


def from_code(code: str, sentence: str) -> KafilaError:
    """The typed error for a gRPC code name that arrived over the wire; unknown names become INTERNAL.

    The sentence is another machine's, so it is made harmless here.
    """
    return BY_CODE.get(code, KafilaError)(line(sentence))
