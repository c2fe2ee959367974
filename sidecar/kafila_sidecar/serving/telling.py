"""What people are told of a stage that is on its way."""

from kafila_sidecar.session.driving.jobs import Progress


class FetchTelling:
    """Joins what a fetch tells of bytes and of waiting."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._here_bytes = self._total_bytes = 0
        self._waits_for = ""

    def came(self, here_bytes: int, total_bytes: int) -> None:
        """So many of the wanted bytes are here."""
        self._here_bytes, self._total_bytes = here_bytes, total_bytes
        self._tell()

    def waits(self, sentence: str) -> None:
        """What is waited for; empty when it has come."""
        self._waits_for = sentence
        self._tell()

    def _tell(self) -> None:
        self._progress("fetching", self._here_bytes, self._total_bytes, self._waits_for)
