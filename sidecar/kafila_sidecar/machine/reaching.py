"""How one session's members are reached from here: this machine's candidates, the relay, and links over either, which
carry control messages too.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.machine.measuring import network_entry
from kafila_sidecar.net.candidates import Address, Candidate
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.net.link.streams import OnStream
from kafila_sidecar.net.nat.behaviour import Nat
from kafila_sidecar.net.nat.monitor import Listener, NetworkMonitor
from kafila_sidecar.net.nat.stun_servers import FoundServers, find_servers
from kafila_sidecar.net.relay.driver import RelayAccess
from kafila_sidecar.net.relay.end import Token
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.driving.links import OPEN_DEADLINE_S
from kafila_sidecar.session.membership.members import Member


class Reaching:
    """One per session, its driver's `LinkMaker`. `start` begins to find out what `nat` gives; `stop` ends that."""

    def __init__(
        self,
        *,
        channel: Channel,
        endpoint: Endpoint,
        monitor: NetworkMonitor,
        further: Sequence[Address],
        on_stream: OnStream,
    ) -> None:
        """`further` are STUN servers beside the rendezvous; `on_stream` takes what members open on a link."""
        self._channel = channel
        self._endpoint = endpoint
        self._monitor = monitor
        self._further = further
        self._on_stream = on_stream
        self._finding: asyncio.Task[FoundServers] | None = None
        self._classifying: asyncio.Task[None] | None = None
        self._nat: Nat | None = None  # as far as is known
        self._listener: Listener | None = None
        self._changed: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever `candidates` gives others than before."""
        self._changed = changed
        self._classifying = asyncio.create_task(self._classify(changed), name="classify")

    def stop(self) -> None:
        if self._listener:
            self._monitor.unlisten(self._listener)
        for task in (self._finding, self._classifying):
            if task:
                task.cancel()

    def moved(self, peers: Iterable[str]) -> None:
        """The session has another rendezvous: STUN and relay are there from now on, also for links that stand."""
        self.stop()
        self._finding, self._listener = None, None
        self._classifying = asyncio.create_task(self._move(tuple(peers)), name="move to another rendezvous")

    async def nat(self) -> Nat:
        """What is in front of this machine now, as far as can be told. Raises Unavailable."""
        self._nat = await self._monitor.about((await self._found()).servers)
        return self._nat

    async def entry(self) -> Json:
        """What the planner reads of this machine's network now. Raises Unavailable."""
        return network_entry(await self.nat())

    def candidates(self) -> Sequence[Candidate]:
        """Where this machine may be reached, as far as is known now."""
        return self._endpoint.candidates()

    def announced(self, peer: str, candidates: Sequence[Candidate]) -> None:
        """A member's candidates are these now; a link that stands or is being made takes note."""
        if member := self._member(peer):
            self._channel.keeper.reached(member, [candidate.target for candidate in candidates])
            self._endpoint.announced(
                session=self._channel.session,
                key=self._channel.link_key(member),
                me=self._channel.identity,
                peer_fingerprint=member.fingerprint,
                candidates=candidates,
            )

    async def dial(self, peer: str, candidates: Sequence[Candidate], deadline_s: float = OPEN_DEADLINE_S) -> Link:
        """A link over which the channel's messages travel too, so that a lost rendezvous stops nothing.

        Raises Unavailable for who can't be reached in time, or is no member any more.
        """
        link = await self._connect(peer, candidates, deadline_s)
        self._carry_control(await link.open(StreamKind.CONTROL), link)
        return link

    # ---- Private

    async def _connect(self, peer: str, candidates: Sequence[Candidate], deadline_s: float) -> Link:
        member = self._member(peer)
        if member is None:
            raise Unavailable(f"{peer} is no longer in the session")
        return await self._endpoint.connect(
            session=self._channel.session,
            key=self._channel.link_key(member),
            me=self._channel.identity,
            peer_name=peer,
            peer_fingerprint=member.fingerprint,
            candidates=candidates,
            deadline_s=deadline_s,
            on_stream=self._on_stream,
            relay=await self._access(member),
            udp=not self._is_blocked,
        )

    def _carry_control(self, stream: Stream, link: Link) -> None:
        async def forward(sealed: bytes) -> None:
            await stream.send(sealed)

        self._channel.attach(forward, link.peer)
        link.closed.add_done_callback(lambda _: self._channel.detach(forward))

    @property
    def _is_blocked(self) -> bool:
        """Whether this network is known to carry no UDP."""
        return self._nat is not None and self._nat.udp is False

    def _member(self, name: str) -> Member | None:
        return next((member for member in self._channel.members if member.name == name), None)

    async def _move(self, peers: Sequence[str]) -> None:
        for peer in peers:
            if (member := self._member(peer)) and (access := await self._access(member)):
                self._endpoint.relay_anew(
                    session=self._channel.session,
                    key=self._channel.link_key(member),
                    me=self._channel.identity,
                    peer_fingerprint=member.fingerprint,
                    relay=access,
                    udp=not self._is_blocked,
                )
        await self._classify(self._changed)

    async def _token(self, member: Member) -> Token:
        """Raises Unavailable while the member has not come to the session's room."""
        mailbox = self._channel.mailbox_of(member)
        if mailbox is None:
            raise Unavailable(f"{member.name} has not come to the session's rendezvous yet")
        return await self._channel.rendezvous.relay_token(mailbox)

    async def _access(self, member: Member) -> RelayAccess | None:
        """None where the rendezvous has no relay, or its name leads nowhere."""
        rendezvous, found = self._channel.rendezvous, await self._found()
        if not rendezvous.udp.port or rendezvous.address.host in found.unresolved:
            return None
        server = found.servers[0].place
        return RelayAccess(server, lambda: self._token(member), rendezvous.relay_stream)

    async def _found(self) -> FoundServers:
        """STUN servers, looked for once."""
        if self._finding is None:
            rendezvous = self._channel.rendezvous
            finding = find_servers(rendezvous.address.host, rendezvous.udp, self._further)
            self._finding = asyncio.create_task(finding, name="find STUN servers")
        return await asyncio.shield(self._finding)

    async def _classify(self, changed: Callable[[], None]) -> None:
        found = await self._found()
        self._listener = Listener(found.servers, changed)
        self._monitor.listen(self._listener)
        with contextlib.suppress(Unavailable):  # told to whoever asks for it
            await self.nat()
