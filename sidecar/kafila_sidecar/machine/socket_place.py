"""The port of this machine's UDP socket, which stays the same from start to start: others look there for it."""

import logging
from pathlib import Path

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import is_port
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.session.keeping.file import read_whole, write_whole

log = logging.getLogger(__name__)

FILE = "udp_port"


def open_where_it_was(folder: Path) -> Endpoint:
    """At another port where that one is taken, or not known. Raises Unavailable."""
    kept = _kept_port(folder / FILE)
    try:
        endpoint = Endpoint.open(port=kept)
    except Unavailable as error:
        log.info("udp_port_taken reason=%s", error)
        endpoint = Endpoint.open()
    port = endpoint.address[1]
    if port != kept:
        _keep_port(folder / FILE, port)
    return endpoint


def _kept_port(path: Path) -> int:
    """0: any."""
    kept = (read_whole(path) or b"").decode("ascii", errors="replace")
    return int(kept) if kept.isascii() and kept.isdigit() and is_port(int(kept[:6])) else 0


def _keep_port(path: Path, port: int) -> None:
    try:
        write_whole(path, str(port).encode())
    except OSError as error:
        log.warning("udp_port_not_kept error=%s", error.strerror)
