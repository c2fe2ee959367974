"""Members joined by a wire without a network: what each sends is delivered to all it is for, or lost where a test
says so. Everything is real but the wire."""

from collections import deque
from collections.abc import Callable, Iterable

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.channel.events import Event
from kafila_sidecar.session.channel.replica import HostForked, Replica
from kafila_sidecar.session.channel.upkeep import Acts, Letter, Upkeep
from kafila_sidecar.session.membership.rivals import Forked
from tests.sidecar.session.trust_world import admitted, new_host


class Villager:
    """One member's replica, what it was told, and what it refused."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.upkeep = Upkeep(replica)
        self.told: list[Event] = []
        self.refused: list[Exception] = []

    @property
    def name(self) -> str:
        return self.replica.self_name

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.replica.members]


class Village:
    """The host first; `deaf` members get nothing, and what they miss is lost."""

    def __init__(self, *names: str) -> None:
        self.people = {"host": Villager(new_host())}
        self.deaf: set[str] = set()
        self._wire: deque[tuple[str, Letter]] = deque()
        for name in names:
            self.join(name)

    def __getitem__(self, name: str) -> Villager:
        return self.people[name]

    def join(self, name: str, by: str = "host") -> Villager:
        """Admits a newcomer, and tells the others."""
        replica, acts = admitted(self[by].replica, name)
        self.people[name] = Villager(replica)
        self.do(by, acts)
        return self.people[name]

    def say(self, name: str, control: ring_pb2.Control) -> None:
        self.do(name, self[name].upkeep.write(control))

    def goodbye(self, name: str) -> None:
        replica = self[name].replica
        self.do(name, Acts([Letter(replica.others, replica.write_goodbye())]))

    def returns(self, name: str) -> None:
        """A deaf member hears again; the others repeat what it may have missed."""
        self.deaf.discard(name)
        for other in self.people.values():
            member = other.replica.log.member(name)
            if other.name != name and other.name not in self.deaf and member is not None:
                letters = [Letter((member,), sealed) for sealed in other.replica.repeat_for(member)]
                self.do(other.name, Acts(letters))

    def do(self, name: str, acts: Acts) -> None:
        """Carries out what a member does, and all that follows."""
        self._perform(name, acts)
        while self._wire:
            self._deliver(*self._wire.popleft())

    def send(self, sealed: bytes, to: Iterable[str]) -> None:
        """Puts bytes of whatever origin before these members."""
        for name in to:
            self.hear(self[name], sealed)
        while self._wire:
            self._deliver(*self._wire.popleft())

    def hear(self, person: Villager, sealed: bytes) -> None:
        try:
            events = self._heard(person, sealed)
            person.told += events
            self._perform(person.name, person.upkeep.settle(events))
        except (Denied, InvalidInput) as error:
            person.refused.append(error)
            self._perform(person.name, person.upkeep.settle([]))

    def _heard(self, person: Villager, sealed: bytes) -> list[Event]:
        """As the channel takes it: a host that is convicted is news, and no end."""
        try:
            return person.replica.receive(sealed) or []
        except HostForked as forked:
            person.refused.append(forked)
            return forked.told

    def forked(self) -> set[str]:
        return {name for name, person in self.people.items() if any(isinstance(e, Forked) for e in person.refused)}

    def _perform(self, name: str, acts: Acts) -> None:
        self[name].told += acts.events
        self._wire.extend((name, letter) for letter in acts.letters)

    def _deliver(self, sender: str, letter: Letter) -> None:
        for reader in letter.readers:
            if reader.name in self.people and reader.name not in self.deaf and sender not in self.deaf:
                self.hear(self[reader.name], letter.sealed)


def told(person: Villager, kind: type, which: Callable[[object], bool] = lambda _: True) -> list[Event]:
    """What of one kind a member was told."""
    return [event for event in person.told if isinstance(event, kind) and which(event)]
