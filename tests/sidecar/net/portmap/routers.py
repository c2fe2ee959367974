"""Small real routers on loopback: NAT-PMP, PCP, and a UPnP gateway over HTTP."""

import asyncio
import contextlib
import re
import struct
from collections.abc import AsyncIterator, Callable

from kafila_sidecar.net.candidates import Address

OUTSIDE = "203.0.113.9"
Answer = Callable[[bytes], bytes | None]


class Pmp:
    """RFC 6886. `ports` is what is mapped now: (opcode, inner) -> outer."""

    def __init__(self, *, taken: frozenset[int] = frozenset(), lifetime_s: int = 7200, refuses: int = 0) -> None:
        self.ports: dict[tuple[int, int], int] = {}
        self.outside = OUTSIDE
        self.asked = 0
        self._taken, self._lifetime_s, self.refuses = taken, lifetime_s, refuses

    def answer(self, asked: bytes) -> bytes | None:
        self.asked += 1
        if asked[0] != 0:
            return struct.pack("!BBHI", 0, 128 + asked[1], 1, 99)
        if asked[1] == 0:
            return struct.pack("!BBHI4B", 0, 128, 0, 99, *map(int, self.outside.split(".")))
        _, opcode, inner, wished, lifetime_s = struct.unpack("!BBxxHHI", asked)
        if lifetime_s == 0:
            self.ports.pop((opcode, inner), None)
            return struct.pack("!BBHIHHI", 0, 128 + opcode, 0, 99, inner, 0, 0)
        if self.refuses:
            return struct.pack("!BBHIHHI", 0, 128 + opcode, self.refuses, 99, inner, 0, 0)
        outer = wished + 1000 if wished in self._taken else wished
        self.ports[opcode, inner] = outer
        return struct.pack("!BBHIHHI", 0, 128 + opcode, 0, 99, inner, outer, min(lifetime_s, self._lifetime_s))


class Pcp:
    """RFC 6887. `ports`: (IANA protocol, inner) -> (nonce, outer)."""

    def __init__(self, *, lifetime_s: int = 7200, refuses: int = 0, also: Pmp | None = None) -> None:
        self.ports: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._lifetime_s, self.refuses, self._also = lifetime_s, refuses, also

    def answer(self, asked: bytes) -> bytes | None:
        if asked[0] != 2:
            if self._also:
                return self._also.answer(asked)
            return struct.pack("!BBxBII12x", 2, 128 | asked[1], 1, 0, 99)
        _, opcode, _, lifetime_s, client = struct.unpack_from("!BBHI16s", asked)
        assert opcode == 1
        assert client == bytes(10) + b"\xff\xff\x7f\x00\x00\x01"
        nonce, protocol, inner, wished, _ = struct.unpack_from("!12sB3xHH16s", asked, 24)
        result = self.refuses
        if lifetime_s == 0 and self.ports.get((protocol, inner), (nonce, 0))[0] == nonce:
            self.ports.pop((protocol, inner), None)
        elif not result:
            self.ports[protocol, inner] = nonce, wished + 1
        outside = bytes(10) + b"\xff\xff" + bytes(map(int, OUTSIDE.split(".")))
        head = struct.pack("!BBxBII12x", 2, 128 | 1, result, min(lifetime_s, self._lifetime_s), 99)
        return head + struct.pack("!12sB3xHH16s", nonce, protocol, inner, 0 if result else wished + 1, outside)


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if (answer := self._answer(data)) is not None:
            self._transport.sendto(answer, addr)


@contextlib.asynccontextmanager
async def router(answer: Answer) -> AsyncIterator[Address]:
    """Where it answers."""
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Protocol(answer), local_addr=("127.0.0.1", 0)
    )
    try:
        yield transport.get_extra_info("sockname")
    finally:
        transport.close()


_DESCRIPTION = """<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0"><specVersion><major>1</major><minor>0</minor></specVersion><device>
<deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType><friendlyName>x</friendlyName>
<UDN>uuid:1</UDN><deviceList><device><deviceType>urn:schemas-upnp-org:device:WANDevice:1</deviceType><UDN>uuid:2</UDN>
<deviceList><device><deviceType>urn:schemas-upnp-org:device:WANConnectionDevice:1</deviceType><UDN>uuid:3</UDN>
<serviceList><service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>
<serviceId>urn:upnp-org:serviceId:WANIPConn1</serviceId><controlURL>/control</controlURL><eventSubURL>/e</eventSubURL>
<SCPDURL>/scpd</SCPDURL></service></serviceList></device></deviceList></device></deviceList></device></root>"""


class Igd:
    """A UPnP gateway. `ports`: (protocol, outer) -> inner."""

    def __init__(self, *, refuses: bool = False, outside: str = OUTSIDE) -> None:
        self.ports: dict[tuple[str, int], int] = {}
        self._outside = outside
        self._refuses = refuses

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
        body = (await reader.readexactly(int(size[1]))).decode() if size else ""
        action = re.search(r"#(\w+)", head)
        status, answer = ("200 OK", _DESCRIPTION) if action is None else self._act(action[1], body)
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/xml\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
            f"{answer}".encode()
        )
        await writer.drain()
        writer.close()

    def _act(self, action: str, body: str) -> tuple[str, str]:
        said = dict(re.findall(r"<(New\w+)>([^<]*)</", body))
        out = ""
        match action:
            case "GetStatusInfo":
                out = "<NewConnectionStatus>Connected</NewConnectionStatus><NewUptime>9</NewUptime>"
            case "GetExternalIPAddress":
                out = f"<NewExternalIPAddress>{self._outside}</NewExternalIPAddress>"
            case "AddPortMapping" | "AddAnyPortMapping" if self._refuses:
                return "500 Internal Server Error", _envelope(_FAULT)
            case "AddPortMapping":
                self.ports[said["NewProtocol"], int(said["NewExternalPort"])] = int(said["NewInternalPort"])
            case "DeletePortMapping":
                del self.ports[said["NewProtocol"], int(said["NewExternalPort"])]
        return "200 OK", _envelope(f"<u:{action}Response>{out}</u:{action}Response>")


_FAULT = (
    "<s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail>"
    "<UPnPError><errorCode>606</errorCode></UPnPError></detail></s:Fault>"
)


def _envelope(inside: str) -> str:
    return (
        '<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:u="urn:schemas-upnp-org:service:WANIPConnection:1"><s:Body>' + inside + "</s:Body></s:Envelope>"
    )


@contextlib.asynccontextmanager
async def igd(device: Igd) -> AsyncIterator[str]:
    """Its description's URL."""
    server = await asyncio.start_server(device.serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/root.xml"
