"""Who attends the rendezvous, as events of coming and going."""

from collections.abc import Container, Iterable

from kafila_sidecar.session.channel.events import Event, MemberDeparted, MemberReturned
from kafila_sidecar.session.membership.members import Member


class Presence:
    """Everybody counts as present until it was missed."""

    def __init__(self) -> None:
        self._absent: set[str] = set()

    def returned(self, others: Iterable[Member], mailboxes: Container[int]) -> list[Event]:
        """The rendezvous says who attends: tells who is back."""
        back = [member.name for member in others if member.mailbox in mailboxes and member.name in self._absent]
        self._absent.difference_update(back)
        return [MemberReturned(name) for name in back]

    def departed(self, others: Iterable[Member], mailboxes: Container[int]) -> list[Event]:
        """The rendezvous says who attends: tells who is absent now."""
        gone = [member.name for member in others if member.mailbox not in mailboxes and member.name not in self._absent]
        self._absent.update(gone)
        return [MemberDeparted(name) for name in gone]

    def forget(self, name: str) -> None:
        """No member any more."""
        self._absent.discard(name)
