"""What this member says of itself, for those who don't know it yet and whenever it changes."""

from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.leaving import Leaving
from kafila_sidecar.session.driving.capability import Capabilities
from kafila_sidecar.session.driving.jobs import Jobs
from kafila_sidecar.session.driving.links import LinkMaker
from kafila_sidecar.session.driving.shares import Shares
from kafila_sidecar.session.driving.turns import Turns


class Introduction:
    """Where it is, what it measured, what it holds, and whether it leaves. To be used in turns."""

    def __init__(
        self,
        *,
        name: str,
        network: LinkMaker,
        jobs: Jobs,
        turns: Turns,
        shares: Shares,
        leaving: Leaving,
        told: Capabilities,
    ) -> None:
        """`told`: what it told the planner."""
        self._name = name
        self._network = network
        self._jobs = jobs
        self._turns = turns
        self._shares = shares
        self._leaving = leaving
        self._told = told

    def introduce(self) -> None:
        """All of it."""
        self._say_where()
        self._say_capability()
        self._say_holds()
        if self._leaving.has_begun:
            self._turns.say(speech.leaving())

    async def measured(self, entry: ev.Json, device: str) -> None:
        """This machine was measured; `entry` is for the planner, without a name."""
        self._told.measured({**entry, "name": self._name}, device)
        self._say_capability()
        self._say_holds()

    async def moved(self) -> None:
        """Everybody hears it at once; the planner, when the network was looked at anew."""
        self._say_where()
        if self._told.latest:
            self._jobs.look(self._network.entry, self.looked)

    async def looked(self, fields: ev.Json) -> None:
        """The next plan reckons with it; this one's links find their way by themselves."""
        if self._told.moved(fields):
            self._say_capability()

    def _say_where(self) -> None:
        self._turns.say(speech.candidates(self._network.candidates()))

    def _say_holds(self) -> None:
        """What others may take from here."""
        if holds := self._shares.holds():
            self._turns.say(ring_pb2.Control(holds=holds))

    def _say_capability(self) -> None:
        if self._told.latest:
            self._turns.say(ring_pb2.Control(capability=self._told.latest))
