"""Stop strings over streamed text. Pure: text in, text out.

Text comes whole characters at a time (unfinished ones are held back in decoding), so cutting it is UTF-8 safe.
"""

from collections.abc import Sequence

from kafila_sidecar.errors import InvalidInput

MOST_STOPS = 64  # OpenAI takes 4, templates of stock models name up to a dozen
LONGEST_STOP = 1000  # characters


class StopStrings:
    """Lets text through up to the stop string that is first complete; holds back an end that may yet become one.

    Each character costs a bounded number of steps a stop string, whatever text and strings are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises: InvalidInput for more or longer ones than are taken."""
        if len(stops) > MOST_STOPS or any(len(stop) > LONGEST_STOP for stop in stops):
            raise InvalidInput(f"a request takes {MOST_STOPS} stop strings of {LONGEST_STOP} characters: name fewer")
        self._matches = [_Match(stop) for stop in dict.fromkeys(stops) if stop]
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What may be shown now. `stopped` is true from the call that completes a stop string."""
        if self.stopped or not self._matches:
            return "" if self.stopped else text
        known = len(self._held)
        text = self._held + text
        for end in range(known, len(text)):
            complete = [match.size for match in self._matches if match.advance(text[end])]
            if complete:
                self.stopped, self._held = True, ""
                return text[: end + 1 - max(complete)]
        keep = max(match.begun for match in self._matches)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


class _Match:
    """How far one stop string has come: Knuth, Morris and Pratt's way, which never looks at a character again."""

    def __init__(self, stop: str) -> None:
        self.size = len(stop)
        self.begun = 0  # characters at the end of the text that the stop string begins with
        self._stop = stop
        self._shorter = [0] * len(stop)  # after as many characters, the next shorter beginning that also fits
        for at in range(1, len(stop)):
            self._shorter[at] = self._after(self._shorter[at - 1], stop[at])

    def advance(self, character: str) -> bool:
        """Whether the stop string is complete with this character."""
        self.begun = self._after(self.begun, character)
        return self.begun == self.size

    def _after(self, begun: int, character: str) -> int:
        while begun and self._stop[begun] != character:
            begun = self._shorter[begun - 1]
        return begun + 1 if self._stop[begun] == character else 0
