"""Who attends the rendezvous, as news of coming and going."""

from collections.abc import Iterable

from sidecar.session.membership import Member
from sidecar.session.news import MemberDeparted, MemberReturned, News


class Presence:
    """Everybody counts as present until it was missed."""

    def __init__(self) -> None:
        self._absent: set[str] = set()

    def attending(self, others: Iterable[Member], mailboxes: Iterable[int]) -> list[News]:
        """The rendezvous says who attends: tells who is absent now and who is back."""
        present = set(mailboxes)
        news: list[News] = []
        for member in others:
            here, was_here = member.mailbox in present, member.name not in self._absent
            if was_here and not here:
                self._absent.add(member.name)
                news.append(MemberDeparted(member.name))
            elif here and not was_here:
                self._absent.discard(member.name)
                news.append(MemberReturned(member.name))
        return news

    def forget(self, name: str) -> None:
        """No member any more."""
        self._absent.discard(name)
