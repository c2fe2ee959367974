"""The network layer's typed errors; each is one of the sidecar's own, so that `service` needs no special case."""

from kafila_sidecar.errors import Denied, InvalidInput, TimedOut, Unavailable


class BadDatagram(InvalidInput):
    """Bytes from the network that are no datagram of ours; dropped and counted, never answered."""


class BadFrame(InvalidInput):
    """A message on a link that breaks the layout in RING.md."""


class PeerReset(Unavailable):
    """The peer gave this stream up (a cancelled request); the link itself stands."""


class LinkLost(Unavailable):
    """The link to a neighbour ended while something waited on it."""


class Unpinned(Denied):
    """A neighbour showed a certificate that the roster doesn't name, or none, or refused ours."""


class ReceiveTimedOut(TimedOut):
    """No whole message came within the deadline; the stream stands, and nothing that came was lost."""
