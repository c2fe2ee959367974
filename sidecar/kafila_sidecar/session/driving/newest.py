"""What a member said of the same thing later counts, whichever came first: mail may wait for minutes while links carry
what was said after it. No I/O, no clock.
"""

from collections.abc import Collection

from kafila_sidecar.session.coordination import messages

STATES = messages.Measured | messages.Reachable | messages.Doing | messages.Lendable | messages.Drawing


class Newest:
    """By sender and thing, the number of the latest word."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, int]] = {}

    def members(self, names: Collection[str]) -> None:
        """The membership log's members now; who comes back counts anew."""
        self._latest = {name: latest for name, latest in self._latest.items() if name in names}

    def is_old(self, sender: str, said: messages.Said, number: int) -> bool:
        """Whether the sender has said otherwise since. `number` as in `MessageFrom`."""
        latest = self._latest.setdefault(sender, {})
        if isinstance(said, messages.Lost):
            return 0 < number < latest.get(f"reached {said.member}", 0)
        thing = _thing(said)
        if not thing or not number:
            return False
        if number < latest.get(thing, 0):
            return True
        latest[thing] = number
        if isinstance(said, messages.Linked):
            latest[f"reached {said.peer}"] = number
        return False


def _thing(said: messages.Said) -> str:
    """What it is about; empty for what is no state, but happened."""
    match said:
        case messages.Linked(peer) | messages.Unlinked(peer):
            return f"link to {peer}"
    return type(said).__name__ if isinstance(said, STATES) else ""
