"""What happens around a member, as it moves the two cores: what the channel, the rendezvous, the links, the stage and
the network bring. What other members say is the dispatcher's.
"""

import logging
from collections.abc import Callable, Collection

from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.channel import events
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.edges import predicted_path
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.cores import Cores
from kafila_sidecar.session.driving.dispatcher import Dispatcher
from kafila_sidecar.session.driving.introduction import Introduction
from kafila_sidecar.session.driving.links import LinkMaker, Links, StandingLinks
from kafila_sidecar.session.driving.roster import Roster
from kafila_sidecar.session.driving.shares import Shares
from kafila_sidecar.session.driving.turns import (
    Call,
    Item,
    LinkChanged,
    NetworkMoved,
    Say,
    StageBroke,
    StageMisled,
    Turns,
)
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.rendezvous.attendance import RendezvousBack, RendezvousLost, RoomGone

log = logging.getLogger(__name__)


class EventHandler:
    """Takes whatever enters a driver's turns to the cores, and knows whom the rendezvous misses."""

    def __init__(
        self,
        *,
        channel: Channel,
        cores: Cores,
        dispatcher: Dispatcher,
        introduction: Introduction,
        roster: Roster,
        network: LinkMaker,
        links: Links,
        standing: StandingLinks,
        turns: Turns,
        shares: Shares,
        now: Callable[[], float],
    ) -> None:
        self._channel = channel
        self._cores = cores
        self._dispatcher = dispatcher
        self._introduction = introduction
        self._roster = roster
        self._network = network
        self._links = links
        self._standing = standing
        self._turns = turns
        self._shares = shares
        self._now = now
        self._without_rendezvous = False
        self._departed: set[str] = set()  # whom the rendezvous misses
        self._shunned: dict[str, int] = {}  # who broke the ring's rules, and in which epoch

    async def handle(self, item: Item | None) -> None:
        """One thing that happened; None: nothing did."""
        match item:
            case events.MessageFrom(sender, control, number):
                await self._dispatcher.hear(sender, control, number)
            case events.Spoke(sender):
                await self._dispatcher.spoke(sender)
            case events.MemberJoined():
                self._introduction.introduce()
                await self._members_changed()
            case events.MemberRemoved(self._follower.name, reason):
                await self._cores.do(self._follower.removed(reason))
            case events.MemberRemoved(name, reason):
                self._roster.gone[name] = reason
                await self._members_changed(without=name, anew=reason == "removed")
            case events.HostChanged():
                await self._host_changed()
            case events.Doubted(sender) if self._coordinator:
                self._links.other_ends.receive_down(sender, self._now())
                await self._cores.obey(self._coordinator.doubted(sender, self._now()))
            case events.KnowsItIsOut(name) if self._coordinator:
                await self._cores.obey(self._coordinator.knows_it_is_out(name, self._now()))
            case events.HostConvicted(name, sentence):
                fault = ev.Fault(name, "PERMISSION_DENIED", sentence)
                await self._cores.do(self._follower.failed(fault, self._now()))
            case events.MemberDeparted(name):
                self._follower.liveness.receive_departure(name, self._now())
                self._departed.add(name)
                self._reach_out()
            case events.MemberReturned(name):
                self._follower.liveness.receive_return(name)
                self._departed.discard(name)
                self._reach_out()
            case RendezvousLost() | RoomGone():
                self._without_rendezvous = True
                self._follower.rendezvous_lost(self._now())
                self._tell_host_of_rendezvous()
                self._reach_out()
            case RendezvousBack():
                self._without_rendezvous = False
                self._follower.rendezvous_back()
                self._tell_host_of_rendezvous()
                self._reach_out()
            case events.HostMissed():
                self._follower.liveness.receive_doubt(self._now())
            case events.Knocked(name):
                self._follower.liveness.receive_knock(name, self._now())
            case events.RoomMoved():
                self._follower.liveness.receive_move(self._channel.keeper_of_room)
                self._network.moved(list(self._standing.up))
            case LinkChanged(peer, link, error):
                await self._link_changed(peer, link, error)
            case Say(control):
                await self._say(control)
            case StageBroke(code, sentence):
                await self._cores.failed_in(State.READY, code, sentence)
            case StageMisled(by, sentence):
                await self._misled(by, sentence)
            case NetworkMoved():
                self._cores.knowledge.mesh.moved(self._follower.name)
                await self._introduction.moved()
            case Call(run):
                await run()

    async def _members_changed(self, *, without: str = "", anew: bool = False) -> None:
        """`without`: who is gone, though it may be back already."""
        members = [member.name for member in self._channel.members if member.name != without]
        if self._follower.name not in members:
            return  # why, is told next
        self._show_that_it_knows(gone=set(self._follower.members) - set(members))
        self._roster.members(members)
        self._dispatcher.newest.members(members)
        self._links.forget(members)
        self._departed &= set(members)
        self._reach_out()
        self._shares.members(members)
        await self._cores.do(self._follower.members_changed(members, self._channel.host, self._now()))
        if self._coordinator:
            await self._cores.obey(self._coordinator.members_changed(members, self._now(), anew=anew))
        else:
            self._cores.knowledge.keep(members)

    def _show_that_it_knows(self, gone: Collection[str]) -> None:
        """A host without a link to this member hears that it knows who is gone: for all that the host knows, it may
        vote with them else, and were it lost next, too few would be left who can't."""
        if gone and self._channel.host not in (self._follower.name, *self._standing.up):
            self._turns.say(speech.here())

    async def _host_changed(self) -> None:
        """Everybody tells the successor what it needs; it starts to decide when it is this member."""
        await self._cores.host_changed()
        self._tell_host_of_rendezvous()
        self._introduction.introduce()
        for peer, link in self._standing.up.items():
            self._turns.say(speech.link(self._cores.epoch, peer, link))
        await self._members_changed()

    def _tell_host_of_rendezvous(self) -> None:
        if self._coordinator is None:
            return
        if self._without_rendezvous:
            self._coordinator.rendezvous_lost(self._now())
        else:
            self._coordinator.rendezvous_back()

    def _reach_out(self) -> None:
        """Whoever the rendezvous does not answer holds a link to everybody, and everybody one to it: the plan's few may
        lead to those alone who are lost next, and nobody would hear then that it is there."""
        away = {member.name for member in self._channel.members} if self._without_rendezvous else self._departed
        self._links.reach(frozenset(away) - {self._follower.name})

    async def _link_changed(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        if self._shunned.get(peer) == self._cores.epoch:
            link = None  # whatever becomes of it: this plan's ring does not use it any more
        if error is None:
            if link is not None and not self._roster.is_linked(self._follower.name, peer):
                self._log_formed(peer, link)
            self._turns.say(speech.link(self._cores.epoch, peer, link))
        elif not self._follower.liveness.is_gone(peer):
            log.warning("link_missing peer=%s reason=%s", peer, error)
            self._turns.say(speech.link(self._cores.epoch, peer, None))  # the host decides who is set aside

    def _log_formed(self, peer: str, link: Link) -> None:
        proposal = self._follower.proposal
        log.info(
            "link_formed peer=%s predicted=%s path=%s rtt_s=%.4f punch_s=%.3f handshake_s=%.3f",
            peer,
            predicted_path(proposal.problem, self._follower.name, peer) if proposal else "",
            link.path,
            link.rtt_s,
            link.punch_s,
            link.handshake_s,
        )

    async def _misled(self, by: str, sentence: str) -> None:
        """Nobody leaves by one member's word: the epoch ends here, and the host hears of a link that can't be used."""
        if outputs := self._follower.misled(ev.Fault(by, "UNAVAILABLE", sentence), self._now()):
            log.warning("rules_broken member=%s reason=%s", by, sentence)
            self._shunned[by] = self._cores.epoch
            self._turns.say(speech.link(self._cores.epoch, by, None))
            await self._cores.do([*outputs, *self._follower.misbehaved(by, sentence)])

    async def _say(self, control: ring_pb2.Control) -> None:
        """To everybody, this member included."""
        await self._channel.send(control)
        await self._dispatcher.understand(self._follower.name, control)

    @property
    def _follower(self) -> Follower:
        return self._cores.follower

    @property
    def _coordinator(self) -> Coordinator | None:
        return self._cores.coordinator
