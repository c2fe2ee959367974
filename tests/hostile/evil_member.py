"""A village with one member that does as it likes: it acknowledges nothing, keeps every vote that it hears of, and
signs whatever entry it has a key for."""

from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.channel.events import Event, HostConvicted, MessageFrom, Outvoted, WentAstray
from kafila_sidecar.session.channel.replica import HostForked
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.admitted import PURPOSE
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.rivals import Forked
from kafila_sidecar.session.membership.succession import LogPlace, vote
from tests.sidecar.session.trust_world import SESSION, go
from tests.sidecar.session.village import Village, Villager, told


@dataclass(frozen=True, slots=True)
class KeptVote:
    """An honest member's vote, as anybody who heard it may use it for ever."""

    voter: str
    successor: str
    standing: int
    place: LogPlace
    signature: bytes


class EvilVillage(Village):
    """`evil` is the one; all others are honest."""

    def __init__(self, *names: str, evil: str) -> None:
        self.evil = evil
        self.kept: list[KeptVote] = []
        super().__init__(*names)

    # ---- What honest members do

    def hear(self, person: Villager, sealed: bytes) -> None:
        if person.name != self.evil:
            super().hear(person, sealed)
            return
        try:
            person.replica.receive(sealed)
        except HostForked:
            return
        except (Denied, InvalidInput) as error:
            person.refused.append(error)

    def _heard(self, person: Villager, sealed: bytes) -> list[Event]:
        """A host that may be outvoted calls the roll: all who are honest answer."""
        events = super()._heard(person, sealed)
        return [WentAstray(one.name, one.proof) if isinstance(one, Outvoted) else one for one in events]

    def miss_host(self, voter: str, successor: str) -> None:
        """A member finds the host gone, and votes; the evil one keeps the vote."""
        replica = self[voter].replica
        heir = replica.log.member(successor)
        if heir is None or replica.log.member(voter) is None or replica.log.host in (voter, successor):
            return
        place, standing = replica.log.place, replica.ballots.standing
        signature = vote(replica.identity, place, successor=heir, standing=standing)
        self.kept.append(KeptVote(voter, successor, standing, place, signature))
        if voter != self.evil:
            self.do(voter, self[voter].upkeep.vote(successor))

    def follow_up(self) -> None:
        """Whoever convicted the host votes for the first of the others, as its follower does."""
        for name in self.honest:
            replica = self[name].replica
            if told(self[name], HostConvicted) and replica.ballots.has_convicted and not replica.is_host:
                self.do(name, self[name].upkeep.vote(replica.log.now.heirs[0].name))

    # ---- What the evil one does

    @property
    def identity(self) -> Identity:
        return self[self.evil].replica.identity

    def places(self) -> list[LogPlace]:
        """Every place of the log, the next one included, as the evil one knows it."""
        entries = self[self.evil].replica.log.entries
        return [replay(SESSION, entries[:length]).place for length in range(1, len(entries) + 1)]

    def takeover(self, place: LogPlace) -> ring_pb2.SignedEntry:
        """The evil one takes over at a place, by its own vote there and all the votes that it ever heard."""
        fitting = [one for one in self.kept if (one.place, one.successor) == (place, self.evil)]
        standing = max((one.standing for one in fitting), default=0)
        return self.signed(place, taken_over=self._proof(place, standing, fitting))

    def signed(self, place: LogPlace, **change: object) -> ring_pb2.SignedEntry:
        """Any entry for any place."""
        _, new_key = self[self.evil].replica.keys.draw(self[self.evil].replica.others)
        entry = ring_pb2.LogEntry(index=place.index, previous=place.previous, session=SESSION, **change)  # type: ignore[arg-type]
        if entry.WhichOneof("change") in ("removed", "taken_over"):
            getattr(entry, entry.WhichOneof("change") or "").rekey = rekey.digest(new_key)
        data = entry.SerializeToString(deterministic=True)
        return ring_pb2.SignedEntry(entry=data, signature=self.identity.sign(PURPOSE, data), rekey=new_key)

    def spread(self, *entries: ring_pb2.SignedEntry, to: tuple[str, ...] = ()) -> None:
        """To these members, or to all."""
        said = ring_pb2.Control(entries=ring_pb2.LogEntries(entries=entries))
        self.send(self[self.evil].replica.write(said), to or self.honest)

    def _proof(self, place: LogPlace, standing: int, fitting: list[KeptVote]) -> ring_pb2.TakenOver:
        me = self[self.evil].replica.me
        own = vote(self.identity, place, successor=me, standing=standing)
        ballots = {one.voter: one.signature for one in fitting if one.standing == standing} | {self.evil: own}
        return ring_pb2.TakenOver(
            successor=self.evil,
            reason="lost",
            standing=standing,
            ballots=[ring_pb2.Ballot(voter=voter, signature=signature) for voter, signature in sorted(ballots.items())],
        )

    # ---- What has to hold

    @property
    def honest(self) -> tuple[str, ...]:
        return tuple(name for name in self.people if name != self.evil)

    @property
    def ended(self) -> set[str]:
        """Honest members whose session is over."""
        return {name for name in self.honest if any(type(error) is Forked for error in self[name].refused)}

    def assert_goes_on(self, names: set[str]) -> None:
        """These honest members hold one log, with all of them in it, and hear one another."""
        assert self.ended == set()
        logs = {name: self[name].replica.log for name in names}
        assert len({log.head for log in logs.values()}) == 1, {name: len(log) for name, log in logs.items()}
        assert all(names <= set(self[name].names) for name in names)
        for number, name in enumerate(sorted(names), 1000):
            self.say(name, go(number))
            for other in names - {name}:
                assert MessageFrom(name, go(number)) in self[other].told, (name, other)
