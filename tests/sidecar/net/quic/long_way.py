"""A connection of ours whose packets aioquic builds and reads, all of them: what the short way is held against."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aioquic.quic.connection import NetworkAddress, QuicConnection

from kafila_sidecar.net.quic import neighbour
from kafila_sidecar.net.quic.connection import PinnedConnection


class LongWay(PinnedConnection):
    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        if self._has_data():
            self._acknowledge_along(now)
        return QuicConnection.datagrams_to_send(self, now)

    def _take(self, data: bytes, now: float) -> bool:
        return False


@contextmanager
def connections_of(kind: type[PinnedConnection]) -> Iterator[pytest.MonkeyPatch]:
    """Neighbours that start meanwhile have this kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbour, "PinnedConnection", kind)
        yield patch
