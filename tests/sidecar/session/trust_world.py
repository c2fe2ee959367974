"""What the tests of trust share: made randomness, a guess store in memory, replicas of members."""

import hashlib
import itertools
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Acts, Upkeep
from kafila_sidecar.session.membership.entries import found_log
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import replay

SESSION = bytes(range(16))
KEY = bytes(32)

Parsed = TypeVar("Parsed", bound=Message)


class MemoryStore:
    """A `GuessStore` that remembers each save."""

    def __init__(self, count: int = 0) -> None:
        self.saved = [count]

    def load(self) -> int:
        return self.saved[-1]

    def save(self, count: int) -> None:
        self.saved.append(count)


def entropy(seed: str = "test") -> Callable[[int], bytes]:
    """Randomness that is the same in every run, and never the same twice in one."""
    counter = itertools.count()

    def draw(size: int) -> bytes:
        return hashlib.shake_256(f"{seed} {next(counter)}".encode()).digest(size)

    return draw


def new_host() -> Replica:
    identity = make_identity()
    terms = ring_pb2.SessionTerms(model="m")
    log = found_log(identity, session=SESSION, terms=terms, name="host", mailbox=1)
    return Replica(identity=identity, self_name="host", log=log, key=KEY, entropy=entropy("host"))


def wish(name: str, identity: Identity) -> ring_pb2.EnrolBody:
    """What a newcomer asks for."""
    return ring_pb2.EnrolBody(name=name, certificate=identity.der, agreement=identity.agreement)


def newcomer(host: Replica, name: str) -> Replica:
    """Admits a member; the other members know nothing of it yet."""
    return admitted(host, name)[0]


def admitted(host: Replica, name: str) -> tuple[Replica, Acts]:
    """Admits a member, and what its host does then."""
    identity = make_identity()
    body, acts = Upkeep(host).admit(wish(name, identity), len(host.log) + 1)
    log = replay(SESSION, body.log)
    return Replica(identity=identity, self_name=body.name, log=log, key=body.key, entropy=entropy(name)), acts


def go(epoch: int) -> ring_pb2.Control:
    return ring_pb2.Control(epoch=epoch, go=ring_pb2.Go())


def parsed(kind: type[Parsed], data: bytes) -> Parsed:
    """A message, as a channel takes it from the wire; raises InvalidInput."""
    message = kind()
    try:
        message.MergeFromString(data)
    except DecodeError as error:
        raise InvalidInput("no message") from error
    return message
