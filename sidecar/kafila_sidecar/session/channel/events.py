"""What a session's channel tells the one who listens to it. Plain values."""

from dataclasses import dataclass, field

from kafila_proto import ring_pb2
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.rendezvous.attendance import RendezvousBack, RendezvousLost, RoomGone


@dataclass(frozen=True, slots=True)
class MessageFrom:
    """A member's control message; each is told once, and a later one may come first, by another way. `number`: the
    sender's count of what it said, 0 where nobody counts."""

    sender: str
    control: ring_pb2.Control
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Spoke:
    """A member said something, and is there; told before what follows from it for the membership."""

    sender: str


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """The log admitted a member; it got no control message sent before."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """The log removed a member, perhaps this one; the reason is "left", "lost" or "removed"."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class KnowsItIsOut:
    """This member is the host, and one that was removed says that it has heard it: it votes for nobody any more."""

    name: str


@dataclass(frozen=True, slots=True)
class HostChanged:
    """A successor admits, plans and decides from here on, perhaps this member; the former host was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class Doubted:
    """This member is the host, and the sender holds it to be lost."""

    sender: str


@dataclass(frozen=True, slots=True)
class HostConvicted:
    """The host signed two histories, which these entries prove to everybody: somebody has to succeed it."""

    name: str
    sentence: str
    proof: tuple[ring_pb2.SignedEntry, ...]


@dataclass(frozen=True, slots=True)
class WentAstray:
    """A member took over in a history that this session does not follow, as this entry proves: it has to go."""

    name: str
    proof: tuple[ring_pb2.SignedEntry, ...]


@dataclass(frozen=True, slots=True)
class Outvoted:
    """This member is the host, and the sender took over by votes that it has answered since: perhaps the others had not
    heard that answer, and are with the sender."""

    name: str
    proof: tuple[ring_pb2.SignedEntry, ...]


@dataclass(frozen=True, slots=True)
class HostMissed:
    """Another member holds the host to be lost, and voted for its successor."""

    by: str


@dataclass(frozen=True, slots=True)
class Knocked:
    """Somebody knocks by the name of a member at this one, which is not the host, to come back: that member was started
    again, or has given up waiting, unless it is a lie."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberDeparted:
    """A member's stream at the rendezvous ended; it is a member still."""

    name: str


@dataclass(frozen=True, slots=True)
class MemberReturned:
    """A departed member attends the rendezvous again; it gets the latest control messages once more."""

    name: str


@dataclass(frozen=True, slots=True)
class RoomMoved:
    """This member's mailbox is at another rendezvous, `Channel.rendezvous`, and so are relay and STUN."""


@dataclass(frozen=True, slots=True)
class JoiningChanged:
    """Newcomers get in again, or don't any more; `Channel.joining` says how it is now."""


Event = (
    MessageFrom
    | Spoke
    | MemberJoined
    | MemberRemoved
    | KnowsItIsOut
    | HostChanged
    | Doubted
    | HostMissed
    | Knocked
    | HostConvicted
    | WentAstray
    | Outvoted
    | MemberDeparted
    | MemberReturned
    | RendezvousLost
    | RendezvousBack
    | RoomGone
    | RoomMoved
    | JoiningChanged
)
