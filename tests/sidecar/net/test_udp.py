"""The UDP socket on loopback: batches, offload with its fallback, and a send buffer that fills."""

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.udp import DRAIN_DATAGRAMS, MAX_UNSENT, Received, UdpSocket, open_socket, runs

_UDP_SEGMENT = 103


class NoOffload(socket.socket):
    """A socket of a system without segmentation offload."""

    def setsockopt(self, level: int, option: int, *rest: Any) -> None:
        if level == socket.IPPROTO_UDP:
            raise OSError(errno.ENOPROTOOPT, "no such option")
        super().setsockopt(level, option, *rest)

    def sendmsg(self, buffers: Any, ancillary: Any = (), flags: int = 0, address: Any = None) -> int:
        if ancillary:
            raise OSError(errno.EINVAL, "no such control message")
        return super().sendmsg(buffers, ancillary, flags, address)


class FullBuffer(socket.socket):
    """A socket whose send buffer is full until `room` is set."""

    room = False

    def sendto(self, data: bytes, address: Any) -> int:  # type: ignore[override]
        if not self.room:
            raise BlockingIOError
        return super().sendto(data, address)

    def sendmsg(self, buffers: Any, ancillary: Any = (), flags: int = 0, address: Any = None) -> int:
        if not self.room:
            raise BlockingIOError
        return super().sendmsg(buffers, ancillary, flags, address)


class Collector:
    """Receives on a socket; `got` keeps datagrams in order, `batches` how many came together."""

    def __init__(self, sock: socket.socket) -> None:
        self.got: list[Received] = []
        self.batches: list[int] = []
        self._more = asyncio.Event()
        self.udp = UdpSocket(sock, self._take)

    @property
    def target(self) -> Address:
        return "127.0.0.1", self.udp.address[1]

    async def wait_for(self, count: int) -> list[bytes]:
        async with asyncio.timeout(5):
            while len(self.got) < count:
                self._more.clear()
                await self._more.wait()
        return [data for data, _ in self.got]

    def _take(self, batch: list[Received]) -> None:
        self.batches.append(len(batch))
        self.got.extend(batch)
        self._more.set()


def bound(kind: type[socket.socket]) -> socket.socket:
    sock = kind(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(("127.0.0.1", 0))
    return sock


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1200], [1]),
        ([1200] * 7 + [76], [8]),
        ([1200, 76, 1200], [2, 1]),
        ([76, 1200], [1, 1]),
        ([1200] * 130, [54, 54, 22]),  # at most 65,000 bytes in one write
        ([100] * 130, [64, 64, 2]),  # at most 64 segments
        ([8900] * 8, [7, 1]),
    ],
)
def test_runs_when_cut_then_each_fits_one_segmented_write_and_nothing_is_lost(
    sizes: list[int], expected: list[int]
) -> None:
    datagrams = [os.urandom(size) for size in sizes]
    cut = list(runs(datagrams))
    assert [len(run) for run in cut] == expected
    assert [datagram for run in cut for datagram in run] == datagrams


@pytest.mark.parametrize("sender_kind", [socket.socket, NoOffload])
@pytest.mark.parametrize("receiver_kind", [socket.socket, NoOffload])
async def test_datagrams_when_sent_with_or_without_offload_then_they_arrive_alike(
    sender_kind: type[socket.socket], receiver_kind: type[socket.socket]
) -> None:
    receiver = Collector(bound(receiver_kind))
    sender = Collector(bound(sender_kind))
    datagrams = [os.urandom(size) for size in [1200] * 20 + [77, 1, 1200, 1199, 8900, 8900, 3]]
    sender.udp.send(datagrams, receiver.target)
    assert await receiver.wait_for(len(datagrams)) == datagrams
    assert {source for _, source in receiver.got} == {sender.target}
    assert sender.udp.dropped == 0
    receiver.udp.close()
    sender.udp.close()


async def test_batch_when_many_datagrams_wait_then_a_wakeup_takes_a_bounded_number() -> None:
    receiver = Collector(bound(NoOffload))
    sender = Collector(bound(NoOffload))
    sender.udp.send([b"%d" % i for i in range(3 * DRAIN_DATAGRAMS)], receiver.target)
    await receiver.wait_for(3 * DRAIN_DATAGRAMS)
    assert max(receiver.batches) == DRAIN_DATAGRAMS
    receiver.udp.close()
    sender.udp.close()


async def test_send_when_the_buffer_is_full_then_datagrams_wait_in_order_up_to_a_bound() -> None:
    receiver = Collector(bound(socket.socket))
    full = bound(FullBuffer)
    assert isinstance(full, FullBuffer)
    sender = Collector(full)
    datagrams = [b"%04d" % i for i in range(MAX_UNSENT + 10)]
    for datagram in datagrams:
        sender.udp.send([datagram], receiver.target)
    assert sender.udp.dropped == 10
    full.room = True
    assert await receiver.wait_for(MAX_UNSENT) == datagrams[:MAX_UNSENT]
    receiver.udp.close()
    sender.udp.close()


async def test_send_when_the_target_is_unreachable_then_it_counts_as_lost_and_others_still_go() -> None:
    receiver = Collector(bound(socket.socket))
    sender = Collector(bound(socket.socket))
    sender.udp.send([b"nowhere", b"nowhere"], ("::1", 9))  # IPv6, from an IPv4 socket
    assert sender.udp.dropped == 2
    sender.udp.send([b"here"], receiver.target)
    assert await receiver.wait_for(1) == [b"here"]
    receiver.udp.close()
    sender.udp.close()


async def test_socket_when_for_every_address_then_ipv4_peers_have_plain_addresses() -> None:
    receiver = Collector(open_socket(None, 0))
    sender = Collector(bound(socket.socket))
    sender.udp.send([b"hello"] * 3, receiver.target)
    await receiver.wait_for(3)
    assert {source for _, source in receiver.got} == {sender.target}
    receiver.udp.send([b"and back"], sender.target)
    assert await sender.wait_for(1) == [b"and back"]
    receiver.udp.close()
    sender.udp.close()


async def test_socket_when_its_port_is_taken_then_unavailable_names_the_port() -> None:
    taken = bound(socket.socket)
    port = taken.getsockname()[1]
    with pytest.raises(Unavailable, match=str(port)):
        open_socket("127.0.0.1", port)
    taken.close()
