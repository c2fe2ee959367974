"""A host that others may have replaced asks who is with it still, and gives way unless most are."""

import asyncio
from collections.abc import Callable

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.events import Outvoted, WentAstray
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Acts, Upkeep
from kafila_sidecar.session.membership.rivals import LeftBehind
from kafila_sidecar.session.membership.roll import are_most_here

OLD_MAIL_S = 2.0  # until what was written before has come
ROLL_CALL_S = 5.0  # how long members have to say that they are with a host which was voted out


class Following:
    """One member's. `perform` carries out what it does, `give_way` ends the channel."""

    def __init__(
        self,
        *,
        replica: Replica,
        upkeep: Upkeep,
        perform: Callable[[Acts], None],
        give_way: Callable[[LeftBehind], None],
    ) -> None:
        self._replica = replica
        self._upkeep = upkeep
        self._perform = perform
        self._give_way = give_way
        self._timer: asyncio.TimerHandle | None = None
        self._removals: dict[str, str] = {}  # put off meanwhile, with their reasons
        self._outlived = set[bytes]()  # entries by which somebody took over from this host, and most did not follow
        self._is_alone = False  # the host hears too few of the others

    @property
    def is_under_way(self) -> bool:
        """Until the others have said with whom they are."""
        return self._timer is not None

    @property
    def may_remove(self) -> bool:
        """A host with whom nobody may be puts nobody out."""
        return not self.is_under_way and not self._is_alone

    def stand_still(self, is_alone: bool) -> None:
        """The host hears too few of the others, or enough again."""
        self._is_alone = is_alone
        if self.may_remove:
            self._remove_put_off()

    def begin(self, outvoted: Outvoted) -> None:
        """Whoever is with this host still says so when it is asked, once for each proof."""
        if outvoted.proof[0].entry in self._outlived:
            self._perform(self._upkeep.settle([WentAstray(outvoted.name, outvoted.proof)]))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ROLL_CALL_S, self._yield_or_stay, outvoted)
            self._perform(self._upkeep.call_the_roll())

    def put_off(self, name: str, reason: str) -> None:
        """Removes a member when that may be."""
        self._removals[name] = reason

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _yield_or_stay(self, outvoted: Outvoted) -> None:
        """A host with whom few are is none; with most of them, it removes who took over in a history of its own."""
        self._timer = None
        replica, rival = self._replica, ring_pb2.LogEntry.FromString(outvoted.proof[0].entry)
        me, present, stood = replica.self_name, replica.present, replica.stood
        if are_most_here(replica.log, me=me, present=present, rival=rival, stood=stood):
            self._outlived.add(outvoted.proof[0].entry)
            self._perform(self._upkeep.settle([WentAstray(outvoted.name, outvoted.proof)]))
            self._remove_put_off()
        else:
            sentence = f"the others went on with {outvoted.name} as their host"
            self._give_way(LeftBehind(sentence, outvoted.proof[0]))

    def _remove_put_off(self) -> None:
        for name in sorted(self._removals.keys() & {member.name for member in self._replica.others}):
            self._perform(self._upkeep.remove(name, self._removals[name]))
        self._removals.clear()
