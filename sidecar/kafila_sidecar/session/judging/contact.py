"""Whether a member still hears of its host at all. One that was removed while it slept, and whose mailbox the
rendezvous forgot, is told so by nobody: it has to find out by itself. No I/O, no clock.
"""

from enum import StrEnum

ASK_AFTER_S = 45.0  # of silence; the host may have had nothing to say
CUT_OFF_S = 60.0  # so long a host waits for the rendezvous before it opens a room elsewhere
UNLINKED_ASK_AFTER_S = 15.0  # while it says that it is ready, without a link to anybody: as long as one may be silent
UNLINKED_CUT_OFF_S = 25.0  # making one takes 20 s at most, and none came about


class ContactLost(StrEnum):
    """What a member does about a silent host."""

    ASKS = "asks"
    IS_CUT_OFF = "is cut off"


class Contact:
    """One member's with its host, while the rendezvous does not answer: else whoever is out hears it by mail. Times are
    seconds of the caller's clock."""

    def __init__(self) -> None:
        self._alone_since: float | None = None
        self._unlinked_since: float | None = None
        self._has_asked = False

    def lose_rendezvous(self, now: float) -> None:
        """It does not answer this member, or knows its room no more."""
        if self._alone_since is None:
            self._alone_since = now

    def find_rendezvous(self) -> None:
        """It answers again, or another one does."""
        self._alone_since, self._has_asked = None, False

    def receive_word(self, now: float) -> None:
        """The host said something, or is another one from now on."""
        if self._alone_since is not None:
            self._alone_since, self._has_asked = max(self._alone_since, now), False

    def look_at_links(self, now: float, *, are_missed: bool) -> None:
        """Whether this member says that it is ready, and no link to anybody stands: nobody is heard by way of others
        either then."""
        if not are_missed:
            self._unlinked_since = None
        elif self._unlinked_since is None:
            self._unlinked_since = now

    @property
    def patience_s(self) -> float:
        """How long a silent host is waited for."""
        return CUT_OFF_S if self._unlinked_since is None else UNLINKED_CUT_OFF_S

    def next_timer(self, now: float, silent_s: float | None) -> float | None:
        """When `handle_timer` has something to do. `silent_s`: of the link to the host, None without one."""
        if self._alone_since is None:
            return None
        heard_at = self._heard_at(now, silent_s)
        due = heard_at + (CUT_OFF_S if self._has_asked else ASK_AFTER_S)
        if self._unlinked_since is None:
            return due
        patience_s = UNLINKED_CUT_OFF_S if self._has_asked else UNLINKED_ASK_AFTER_S
        return min(due, max(heard_at, self._unlinked_since) + patience_s)

    def handle_timer(self, now: float, silent_s: float | None) -> ContactLost | None:
        """What has become due."""
        due = self.next_timer(now, silent_s)
        if due is None or now < due:
            return None
        if self._has_asked:
            return ContactLost.IS_CUT_OFF
        self._has_asked = True
        return ContactLost.ASKS

    def _heard_at(self, now: float, silent_s: float | None) -> float:
        assert self._alone_since is not None
        return self._alone_since if silent_s is None else max(self._alone_since, now - silent_s)
