"""`python alive.py HOST PORT`: exit status 0 if a rendezvous takes connections there and answers STUN.

Both are asked, since members need both: introductions over TCP, and UDP to find paths (RFC 8489).
"""

import os
import socket
import sys

DEADLINE_S = 3.0
MAGIC = bytes.fromhex("2112a442")
BINDING_REQUEST, BINDING_SUCCESS = b"\x00\x01", b"\x01\x01"


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    try:
        socket.create_connection((host, port), DEADLINE_S).close()
        answers_stun(host, port)
    except OSError as error:
        sys.exit(f"no rendezvous answers at {host}:{port}: {error}")


def answers_stun(host: str, port: int) -> None:
    """Raises OSError where nobody answers in time, or answers something else."""
    transaction = os.urandom(12)
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as asking:
        asking.settimeout(DEADLINE_S)
        asking.connect(address)
        asking.send(BINDING_REQUEST + b"\x00\x00" + MAGIC + transaction)
        answer = asking.recv(1500)
    if answer[:2] != BINDING_SUCCESS or answer[8:20] != transaction:
        raise OSError("that was no answer to STUN")


if __name__ == "__main__":
    main()
