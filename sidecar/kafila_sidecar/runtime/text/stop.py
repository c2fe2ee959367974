"""Stop strings over streamed text. Pure: text in, text out.

Text comes whole characters at a time (the detokeniser holds back unfinished ones), so cutting it is UTF-8 safe.
"""

from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the stop string that is first complete; holds back an end that may yet become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What may be shown now. `stopped` is true from the call that completes a stop string."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self._stops if stop in text]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with, short of all of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
