"""The router that this machine sends to by default: it is who maps ports."""

import socket
import struct
import subprocess
from pathlib import Path

_ROUTES = Path("/proc/net/route")  # Linux
_ROUTE_COMMAND = ("route", "-n", "get", "default")  # macOS and BSD
_DEADLINE_S = 2.0
_UP_AND_GATEWAY = 0x3  # RTF_UP and RTF_GATEWAY of linux/route.h


def default_gateway() -> str | None:
    """Its IPv4 address; None when there is none, or this system has no way to tell. Reads a file or runs a command."""
    try:
        return parse_routes(_ROUTES.read_text("ascii"))
    except (OSError, UnicodeDecodeError):
        pass
    try:
        done = subprocess.run(_ROUTE_COMMAND, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_route_command(done.stdout)


def parse_routes(text: str) -> str | None:
    """The default route of the least metric in Linux' table, whose numbers are hexadecimal in the host's byte order."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 8 and fields[1] == fields[7] == "00000000" and int(fields[3], 16) & 0x3 == _UP_AND_GATEWAY:
            found.append((int(fields[6]), socket.inet_ntoa(struct.pack("=I", int(fields[2], 16)))))
    return min(found)[1] if found else None


def parse_route_command(text: str) -> str | None:
    """The line "gateway: 192.168.1.1" of BSD's `route get`."""
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        if name == "gateway":
            try:
                return socket.inet_ntoa(socket.inet_aton(value.strip()))
            except OSError:
                return None
    return None
