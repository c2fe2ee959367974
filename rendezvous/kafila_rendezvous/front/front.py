"""The front's driver: sockets that listen, one passage for each connection that may enter, and a sweep each second."""

import asyncio
import contextlib
import itertools
import logging
import socket
import urllib.parse
from collections.abc import Callable, Sequence

from kafila_rendezvous.address import plain, spoken
from kafila_rendezvous.errors import LimitReached, Vanished
from kafila_rendezvous.front.door import SWEEP_EVERY_S, Door, Visitor
from kafila_rendezvous.front.folder import HeldFolder
from kafila_rendezvous.front.passage import Flow, refuse

logger = logging.getLogger(__name__)

ACCEPTS_AT_ONCE = 64  # before other things get their turn
PAUSE_S = 0.2  # when the system has no socket to give


class Connection:
    """A visitor's way to gRPC; what the servicer knows of who calls."""

    def __init__(self, front: "Front", visitor: Visitor, outer: socket.socket, inner: socket.socket, port: int) -> None:
        self.visitor = visitor
        self.observed = spoken(visitor.host, port)
        self._front = front
        self._sockets: tuple[socket.socket, ...] = (outer, inner)
        self._loop = asyncio.get_running_loop()
        self._up = Flow(outer, inner, self._heard, self._ended)
        self._down = Flow(inner, outer, self._answered, self._ended)

    @property
    def host(self) -> str:
        return self.visitor.host

    @property
    def owner(self) -> str:
        return self.visitor.owner

    def called(self, size: int) -> None:
        """Raises LimitReached when calls come too fast from its address."""
        try:
            self._front.door.called(self.visitor, size, self._loop.time())
        finally:
            self._resume()

    def took(self, size: int) -> None:
        self._front.door.took(self.visitor, size)
        self._resume()

    def attends(self, change: int) -> None:
        if not self._is_closed:
            self._front.door.attends(self.visitor, change)

    def drop(self) -> None:
        """Ends it now, whatever is on the way."""
        self._close(refuse)

    @property
    def _is_closed(self) -> bool:
        return not self._sockets

    def _heard(self, size: int) -> bool:
        may_go_on = self._front.door.heard(self.visitor, size, self._loop.time())
        if overdrawn := self._front.door.overdrawn():
            self._front.drop(overdrawn)
        return may_go_on

    def _answered(self, size: int) -> bool:
        self._front.door.answered(self.visitor, size)
        self._resume()
        return True

    def _resume(self) -> None:
        if self.visitor.owes_since is None and not self._is_closed:
            self._up.resume()

    def _ended(self) -> None:
        """One side has no more to say; all that it said before has been passed on."""
        self._close(socket.socket.close)

    def _close(self, close: Callable[[socket.socket], None]) -> None:
        if self._is_closed:
            return
        for flow in (self._up, self._down):
            flow.close()
        for sock in self._sockets:
            close(sock)
        self._sockets = ()
        self._front.left(self)


class Front:
    """Runs from construction until `close`. gRPC listens at `inner`, in a folder that only this user can enter."""

    def __init__(self, listeners: Sequence[socket.socket], door: Door) -> None:
        self.door = door
        self.refused = 0  # connections
        self._folder = HeldFolder()
        self.inner = self._folder.path / "s"
        self._listeners = tuple(listeners)
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._by_peer: dict[str, Connection] = {}
        self._by_visitor: dict[Visitor, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._paused: list[asyncio.TimerHandle] = []

    def open(self) -> None:
        """Lets visitors in; gRPC listens by now."""
        for listener in self._listeners:
            self._loop.add_reader(listener, self._acceptable, listener)

    def shut(self) -> None:
        """Nobody enters any more; who is here stays."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners = ()
        for handle in self._paused:
            handle.cancel()

    def close(self) -> None:
        self.shut()
        for connection in list(self._by_peer.values()):
            connection.drop()
        if self._timer:
            self._timer.cancel()
        self._folder.close()

    def caller(self, peer: str) -> Connection:
        """Who calls, by gRPC's name for it. Raises Vanished when that connection has ended."""
        if (connection := self._by_peer.get(urllib.parse.unquote(peer))) is None:
            raise Vanished("this connection has ended")
        return connection

    def left(self, connection: Connection) -> None:
        del self._by_peer[self._by_visitor.pop(connection.visitor)]
        self.door.leave(connection.visitor)

    def drop(self, visitor: Visitor) -> None:
        self._by_peer[self._by_visitor[visitor]].drop()

    def _acceptable(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors or memory: those who wait are asked for again
                logger.warning("accept_failed error=%s", error.strerror)
                self._loop.remove_reader(listener)
                self._paused = [self._loop.call_later(PAUSE_S, self.open)]
                return
            try:
                self._admit(sock, plain(address[0]), address[1])
            except (LimitReached, OSError) as error:
                self.refused += 1
                logger.debug("connection_refused error=%s", error)
                refuse(sock)

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        visitor = self.door.enter(host, self._loop.time())
        if (dispensable := self.door.dispensable()) not in (None, visitor):
            self.drop(dispensable)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            inner, peer = self._inner_socket()
        except OSError:
            self.door.leave(visitor)
            raise
        self._by_visitor[visitor] = peer
        self._by_peer[peer] = Connection(self, visitor, sock, inner, port)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _inner_socket(self) -> tuple[socket.socket, str]:
        """A connection to gRPC, and what gRPC calls it: the name that our end is bound to."""
        name = self._folder.path / str(next(self._numbers))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind(str(name))
            sock.connect(str(self.inner))
        except OSError:
            sock.close()
            raise
        finally:
            name.unlink(missing_ok=True)
        return sock, f"unix:{name}"

    def _sweep(self) -> None:
        for visitor in self.door.overdue(self._loop.time()):
            with contextlib.suppress(KeyError):  # ended by one before it
                self.drop(visitor)
        self._timer = self._loop.call_later(SWEEP_EVERY_S, self._sweep) if self._by_peer else None
