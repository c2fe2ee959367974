"""Who attends the rendezvous, as events of coming and going; nobody is judged by it here. No I/O, no clock."""

from collections.abc import Container, Iterable

from kafila_sidecar.session.channel.events import Event, MemberDeparted, MemberReturned
from kafila_sidecar.session.membership.members import Member


class Presence:
    """Everybody counts as present until it was missed.

    When the rendezvous comes back the others come back too, each in its own time: for `absence_s` nobody is missed.
    """

    def __init__(self, absence_s: float) -> None:
        self.attended = True  # the rendezvous answers
        self._absence_s = absence_s
        self._absent: set[str] = set()
        self._unattended: set[str] = set()  # whose mailbox nobody attends now, missed already or not
        self._missed_from = 0.0

    @property
    def somebody_is_away(self) -> bool:
        """A member that may be back in a moment, or be no member any more."""
        return bool(self._absent)

    def gets_mail(self, name: str) -> bool:
        """As far as is known: the rendezvous answers, and this member attends it. Who is not back there yet, perhaps
        since the rendezvous forgot its mailbox, is not missed yet, and gets none all the same."""
        return self.attended and name not in self._absent | self._unattended

    def lose_rendezvous(self) -> None:
        """It does not answer, so that nobody knows who attends."""
        self.attended = False

    def find_rendezvous(self, now: float) -> float:
        """It answers again; returns when to look next."""
        self.attended, self._missed_from = True, now + self._absence_s
        return self._missed_from

    def look(self, others: Iterable[Member], mailboxes: Container[int], now: float) -> list[Event]:
        """The rendezvous says who attends: tells who is back, and who is absent now."""
        if not self.attended:
            return []
        others = list(others)
        self._unattended = {one.name for one in others if one.mailbox not in mailboxes}
        back = [one.name for one in others if one.mailbox in mailboxes and one.name in self._absent]
        gone = [one.name for one in others if one.mailbox not in mailboxes and one.name not in self._absent]
        if now < self._missed_from:
            gone = []
        self._absent = (self._absent - set(back)) | set(gone)
        return [*(MemberReturned(name) for name in back), *(MemberDeparted(name) for name in gone)]

    def forget(self, name: str) -> None:
        """No member any more."""
        self._absent.discard(name)
        self._unattended.discard(name)
