"""One member's keys in one session: the group's, by number, and one for each pair that it belongs to."""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, Unavailable
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.agreement import PairKeys, pair_keys
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import KEY_BYTES, Entropy, Sealer

KEPT_KEYS = 4  # of the group: the newest, and those that messages on their way may be sealed with

_GROUP, _PAIR = b"kafila control", b"kafila pair"


class Early(Unavailable):
    """A message is sealed by a key, or by somebody, that a log entry on its way will make known."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """One of the group's, 32 bytes, and what seals with it: setting a cipher up takes longer than a message does."""

    key: bytes = field(repr=False)
    sealer: Sealer


@dataclass(frozen=True, slots=True)
class PairKey:
    """What two members share, and what seals by it."""

    keys: PairKeys
    sealer: Sealer


class Keyring:
    """`number` counts the group's keys as the log does; `take` is told each new one. Both raise InvalidInput for a key
    that is none."""

    def __init__(self, *, identity: Identity, session: bytes, number: int, key: bytes, entropy: Entropy) -> None:
        self.number = number
        self._identity = identity
        self._session = session
        self._entropy = entropy
        self._group: OrderedDict[int, GroupKey] = OrderedDict({number: self._of_group(key)})
        self._pairs: dict[bytes, PairKey] = {}  # by the other one's fingerprint

    @property
    def key(self) -> bytes:
        """The group's newest."""
        return self._group[self.number].key

    def take(self, key: bytes) -> None:
        """The group's next key."""
        self.number += 1
        self._group[self.number] = self._of_group(key)
        while len(self._group) > KEPT_KEYS:
            self._group.popitem(last=False)

    def draw(self, readers: Iterable[Member]) -> tuple[bytes, bytes]:
        """A next key, and the `Rekey` by which the readers learn it."""
        key = self._entropy(KEY_BYTES)
        number = self.number + 1
        return key, rekey.wrap(key, session=self._session, number=number, readers=readers, entropy=self._entropy)

    def unwrap(self, data: bytes, index: int) -> bytes:
        """The next key from a `Rekey`, for the member admitted by the log entry `index`; raises as `rekey.unwrap`."""
        own = self._identity.agreement_key
        return rekey.unwrap(data, session=self._session, number=self.number + 1, own=own, index=index)

    def seal(self, plain: bytes, *, number: int) -> bytes:
        """For the group, with a key that is kept."""
        sealed = self._group[number].sealer.seal(plain)
        sealed.key = number
        return sealed.SerializeToString()

    def seal_for(self, reader: Member, plain: bytes, *, writer: int) -> bytes:
        """For one member only; `writer` is the index of the log entry that admitted this one."""
        sealed = self._with(reader).sealer.seal(plain)
        sealed.pair = writer
        return sealed.SerializeToString()

    def open(
        self, sealed: ring_pb2.Sealed, members: Iterable[Member], *, signs_own_return: Member | None = None
    ) -> bytes:
        """What is inside. Raises Early when key or writer may become known, Denied for what nobody sealed for us.

        signs_own_return: the host, whose writing may be what tells that it came back, by an entry not known yet.
        """
        if sealed.key:
            return self._open_group(sealed)
        writer = next((member for member in members if member.index == sealed.pair), None)
        if writer is not None:
            return self._with(writer).sealer.open(sealed)
        with contextlib.suppress(Denied):
            if signs_own_return is not None and signs_own_return.index < sealed.pair:
                return self._with(signs_own_return).sealer.open(sealed)
        raise Early("a message was sealed by somebody who is no member yet")

    def pair(self, other: Member) -> PairKeys:
        """What this member and the other one share."""
        return self._with(other).keys

    def forget(self, other: Member) -> None:
        """The other one is no member any more."""
        self._pairs.pop(other.fingerprint, None)

    def _of_group(self, key: bytes) -> GroupKey:
        if len(key) != KEY_BYTES:
            raise InvalidInput(f"a session's key has {len(key)} bytes, not {KEY_BYTES}")
        return GroupKey(key, Sealer(key, _GROUP + self._session, self._entropy))

    def _with(self, other: Member) -> PairKey:
        if other.fingerprint not in self._pairs:
            keys = pair_keys(self._session, self._identity.agreement_key, other.agreement)
            self._pairs[other.fingerprint] = PairKey(keys, Sealer(keys.seal, _PAIR + self._session, self._entropy))
        return self._pairs[other.fingerprint]

    def _open_group(self, sealed: ring_pb2.Sealed) -> bytes:
        if sealed.key > self.number:
            raise Early(f"a message is sealed with the session's key {sealed.key}, we hold {self.number}")
        if sealed.key not in self._group:
            raise Denied(f"a message is sealed with the session's key {sealed.key}, which is long replaced")
        return self._group[sealed.key].sealer.open(sealed)
