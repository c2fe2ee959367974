"""What is kept of one session, as values, and as bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from google.protobuf.message import DecodeError

from kafila_proto import kept_pb2, ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.net.candidates import Address, is_port, unusable
from kafila_sidecar.session.membership.identity import Identity, identity_from
from kafila_sidecar.session.membership.log import Log, replay
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import KEY_BYTES
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace

MOST_PLACES = 8
MOST_REACHED = 8  # addresses of one member
KEPT_FOR_S = 7 * 86_400.0  # so long after it was in the session last a machine comes back by itself


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A room, and this member's mailbox in it."""

    address: RendezvousAddress
    mailbox: MailboxPlace
    is_first: bool = field(default=False, compare=False)  # where this member came to the session

    def is_room_of(self, other: "KeptPlace") -> bool:
        """Whether both are mailboxes of one room."""
        return self.mailbox.room == other.mailbox.room and self.address.is_same(other.address)


@dataclass(frozen=True, slots=True)
class KeptSession:
    """All that a member needs to be the same one again."""

    identity: Identity = field(repr=False)
    name: str
    log: Log = field(repr=False)
    key: bytes = field(repr=False)
    places: tuple[KeptPlace, ...]  # the newest first
    words: tuple[str, ...] = field(default=(), repr=False)  # of the code, on the host
    lend_bytes: int = 0
    spare_bytes: int | None = None  # the most that is fetched for others' loss, if its owner said so
    typed: str = field(default="", repr=False)
    stub_model: bytes = b""
    formed: bool = False
    seen_at: float = 0.0  # seconds since 1970
    rests_until: float = 0.0  # no better plan is taken before; seconds since 1970
    note: str = ""
    model: str = ""  # what the founder opened: a folder's path, which others never hear
    reach: Mapping[bytes, tuple[Address, ...]] = field(default_factory=dict)  # where the others could be reached last,
    # by their certificates' fingerprints

    @property
    def id(self) -> str:
        return self.log.session.hex()

    def at(self, place: KeptPlace) -> "KeptSession":
        """The room is there now; the others may still look where it was, and where they came. That place stays,
        however often a host moves: one that lies can't put it out of mind. Of one room the latest mailbox counts."""
        if self.places[:1] == (place,):
            return self
        former = [one for one in self.places if one.is_first or one.address != place.address]
        place, *others = _one_of_each_room([place, *former])
        over = max(0, len(others) + 1 - MOST_PLACES)
        dropped = [one for one in reversed(others) if not one.is_first][:over]
        return replace(self, places=(place, *(one for one in others if one not in dropped)))

    def known_as(self, address: RendezvousAddress) -> "KeptSession":
        """A rendezvous has another address than before."""
        places = (replace(one, address=address) if one.address.is_same(address) else one for one in self.places)
        return replace(self, places=tuple(places))

    def was_at(self, address: RendezvousAddress) -> bool:
        """Whether the room is or was at this rendezvous, by whatever address it was known."""
        return any(place.address.is_same(address) for place in self.places)

    def reached(self, member: Member, addresses: Sequence[Address]) -> "KeptSession":
        """A member said where it can be reached now; who can't return is forgotten."""
        may = {one.fingerprint for one in self.log.known if self.log.may_return(one)}
        known = {**self.reach, member.fingerprint: tuple(addresses[:MOST_REACHED])}
        return replace(self, reach={one: known[one] for one in known if one in may})

    def to_bytes(self) -> bytes:
        places = [
            kept_pb2.KeptPlace(
                address=str(place.address),
                room=place.mailbox.room,
                mailbox=place.mailbox.mailbox,
                host=place.mailbox.host,
                secret=place.mailbox.secret,
                first=place.is_first,
            )
            for place in self.places
        ]
        message = kept_pb2.KeptSession(
            session=self.log.session,
            name=self.name,
            signing_key=self.identity.private_key.private_bytes_raw(),
            certificate=self.identity.der,
            agreement_key=self.identity.agreement_key.private_bytes_raw(),
            log=self.log.entries,
            key=self.key,
            words=self.words,
            places=places,
            lend_bytes=self.lend_bytes,
            spare_bytes=self.spare_bytes,
            typed=self.typed,
            stub_model=self.stub_model,
            formed=self.formed,
            seen_at=self.seen_at,
            rests_until=self.rests_until,
            note=self.note,
            model=self.model,
            reach=[_reach(one, addresses) for one, addresses in sorted(self.reach.items())],
        )
        return message.SerializeToString(deterministic=True)


def kept_from(data: bytes) -> KeptSession:
    """Raises KafilaError for what no member wrote."""
    try:
        message = kept_pb2.KeptSession.FromString(data)
    except DecodeError as error:
        raise InvalidInput("what was kept of a session can't be read") from error
    if len(message.key) != KEY_BYTES or not message.places:
        raise InvalidInput("what was kept of a session has no key, or no place")
    places = _one_of_each_room([_place(one) for one in message.places[:MOST_PLACES]])
    if not any(place.is_first for place in places):
        places[-1] = replace(places[-1], is_first=True)  # the oldest that an earlier version has kept
    return KeptSession(
        identity=identity_from(message.signing_key, message.certificate, message.agreement_key),
        name=message.name,
        log=replay(message.session, message.log),
        key=message.key,
        places=tuple(places),
        words=tuple(message.words),
        lend_bytes=message.lend_bytes,
        spare_bytes=message.spare_bytes if message.HasField("spare_bytes") else None,
        typed=message.typed,
        stub_model=message.stub_model,
        formed=message.formed,
        seen_at=message.seen_at,
        rests_until=message.rests_until,
        note=message.note,
        model=message.model,
        reach={one.fingerprint: _addresses(one) for one in message.reach},
    )


def _one_of_each_room(places: Sequence[KeptPlace]) -> list[KeptPlace]:
    """The latest mailbox in each, as first as any of that room."""
    found: list[KeptPlace] = []
    for place in places:
        if not any(place.is_room_of(one) for one in found):
            is_first = any(one.is_first for one in places if one.is_room_of(place))
            found.append(replace(place, is_first=is_first))
    return found


def _place(kept: kept_pb2.KeptPlace) -> KeptPlace:
    mailbox = MailboxPlace(kept.room, kept.mailbox, host=kept.host, secret=kept.secret)
    return KeptPlace(parse_address(kept.address), mailbox, kept.first)


def _reach(fingerprint: bytes, addresses: Sequence[Address]) -> kept_pb2.KeptReach:
    candidates = [ring_pb2.Candidate(address=host, port=port) for host, port in addresses]
    return kept_pb2.KeptReach(fingerprint=fingerprint, candidates=ring_pb2.Candidates(candidates=candidates))


def _addresses(reach: kept_pb2.KeptReach) -> tuple[Address, ...]:
    kept = reach.candidates.candidates[:MOST_REACHED]
    return tuple((one.address, one.port) for one in kept if is_port(one.port) and not unusable(one.address))
