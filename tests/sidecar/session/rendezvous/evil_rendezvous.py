"""A rendezvous that does what it likes with the mail: a test says what. Speaks the real protocol on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_proto import ring_pb2
from kafila_sidecar.session.rendezvous.address import RendezvousAddress

ROOM = 7


@dataclass(frozen=True, slots=True)
class EvilMail:
    sender: int
    to: int
    body: bytes

    @property
    def step(self) -> str:
        """Which step of an admission it is; "envelope" for control messages."""
        parcel = ring_pb2.Parcel.FromString(self.body)
        return parcel.admission.WhichOneof("step") or "" if parcel.HasField("admission") else "envelope"

    def changed(self, body: bytes) -> "EvilMail":
        return replace(self, body=body)


Meddle = Callable[[EvilMail], Iterable[EvilMail]]


class EvilRendezvous(pb_grpc.RendezvousServicer):
    """One room. `meddle` gets each piece of mail and says what is delivered instead; `seen` keeps all of it."""

    def __init__(self) -> None:
        self.seen: list[EvilMail] = []
        self.meddle: Meddle = lambda mail: [mail]
        self.host = 1  # as newcomers are told
        self.lost_at = ""  # the step of an admission at which it says that it knows the room no more
        self._boxes: dict[int, asyncio.Queue[pb.Event]] = {}
        self._next = 1

    def deliver(self, mail: EvilMail) -> None:
        """Puts mail into a mailbox, whoever may have written it."""
        self.tell(mail.to, pb.Event(mail=pb.Mail(sender=mail.sender, body=mail.body)))

    def tell(self, mailbox: int, event: pb.Event) -> None:
        if mailbox in self._boxes:
            self._boxes[mailbox].put_nowait(event)

    def open_mailbox(self) -> int:
        """One of its own."""
        number, self._next = self._next, self._next + 1
        self._boxes[number] = asyncio.Queue()
        return number

    async def Create(self, request: pb.CreateRequest, context: Any) -> pb.CreateReply:
        return pb.CreateReply(room=ROOM, secret=bytes(32), mailbox=self.open_mailbox(), idle_ttl_s=60)

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        return pb.JoinReply(secret=bytes(32), mailbox=self.open_mailbox(), admitter=self.host, idle_ttl_s=60)

    async def Attend(self, request: pb.AttendRequest, context: Any) -> AsyncIterator[pb.Event]:
        others = [number for number in self._boxes if number != request.mailbox]
        yield pb.Event(present=pb.Present(mailboxes=others))
        for number in others:
            self.tell(number, pb.Event(arrived=request.mailbox))
        while True:
            yield await self._boxes[request.mailbox].get()

    async def Post(self, request: pb.PostRequest, context: Any) -> pb.PostReply:
        for to in request.to:
            mail = EvilMail(request.mailbox, to, request.body)
            self.seen.append(mail)
            if mail.step == self.lost_at:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such room")
            for instead in self.meddle(mail):
                self.deliver(instead)
        return pb.PostReply()

    async def Leave(self, request: pb.LeaveRequest, context: Any) -> pb.LeaveReply:
        self._boxes.pop(request.mailbox, None)
        return pb.LeaveReply()


@contextlib.asynccontextmanager
async def evil_rendezvous() -> AsyncIterator[tuple[EvilRendezvous, RendezvousAddress]]:
    evil = EvilRendezvous()
    server = grpc.aio.server()
    pb_grpc.add_RendezvousServicer_to_server(evil, server)  # type: ignore[no-untyped-call]
    async with listening(server) as address:
        yield evil, address


@contextlib.asynccontextmanager
async def listening(server: grpc.aio.Server) -> AsyncIterator[RendezvousAddress]:
    """Serves on loopback, without TLS."""
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield RendezvousAddress("127.0.0.1", port, insecure=True)
    finally:
        await server.stop(0.2)
