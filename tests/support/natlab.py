"""Real kernel NAT in network namespaces: hosts behind routers of every behaviour, on a small internet of their own.

Needs root, `ip` and `nft`. Names differ for each lab, nothing leaves the namespaces, and everything goes with the lab.
The rules are those of the NAT lab notes: without the drop on input, an early inbound punch would claim the connection
tracking entry, and the outbound mapping would move to another port.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

INTERNET = "10.9"  # a private range, so that a rendezvous without TLS is allowed there
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_NETLINK_NETFILTER = 12
_DELETE_ALL_TRACKED = struct.pack("=IHHIIBBH", 20, 0x102, 0x5, 1, 0, 0, 0, 0)  # IPCTNL_MSG_CT_DELETE, no filter

_FIREWALL = """
table ip f {
 chain input { type filter hook input priority 0; policy accept;
  iifname "wan" ct state established,related accept
  iifname "wan" drop
 }
 chain forward { type filter hook forward priority 0; policy accept;
  %s
  iifname "wan" ct state established,related accept
  iifname "wan" ct status dnat accept
  iifname "wan" drop
 }
}
"""
_NAT = """
table ip nat {
 %s
 chain post { type nat hook postrouting priority 100;
  oifname "wan" masquerade %s
 }
}
"""
_LEARN = """
 map learnt { type %(key)s : ipv4_addr; flags dynamic,timeout; timeout 120s; size 65535; }
 chain learn { type filter hook postrouting priority 90;
  oifname "wan" meta l4proto udp update @learnt { %(out)s : ip saddr }
 }
 chain pre { type nat hook prerouting priority -100;
  iifname "wan" meta l4proto udp dnat to %(inn)s map @learnt
 }
"""
_ANYBODY = _LEARN % {"key": "inet_service", "out": "udp sport", "inn": "udp dport"}
_KNOWN_ADDRESS = _LEARN % {
    "key": "ipv4_addr . inet_service",
    "out": "ip daddr . udp sport",
    "inn": "ip saddr . udp dport",
}


_WITHOUT_UDP = """
table ip cut {
 chain forward { type filter hook forward priority -10; policy accept;
  meta l4proto udp drop
 }
}
"""

_CUT = """
table inet %(name)s {
 chain out { type filter hook output priority 0; policy accept;
  oifname "eth0" %(out)s drop
 }
 chain in { type filter hook input priority 0; policy accept;
  iifname "eth0" %(inn)s drop
 }
}
"""


class Cut(Enum):
    """What a cable does not carry any more, as an nftables match."""

    ALL = ""
    UDP = "meta l4proto udp"


class Behaviour(Enum):
    """What a router does, as nftables rules: firewall, learnt ways in, how ports are chosen."""

    PERMISSIVE = (_FIREWALL % "", _NAT % (_ANYBODY, ""))
    ORDINARY = (_FIREWALL % "", _NAT % ("", ""))
    RESTRICTIVE = (_FIREWALL % "", _NAT % ("", "random,fully-random"))
    ADDRESS_DEPENDENT = (_FIREWALL % "", _NAT % (_KNOWN_ADDRESS, ""))
    BLOCKED = (_FIREWALL % "meta l4proto udp drop", _NAT % ("", ""))


def missing() -> str:
    """Why there can be no lab here; empty when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "the NAT lab needs root on Linux"
    absent = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if absent:
        return f"the NAT lab needs {' and '.join(absent)}"
    probe = f"kf{os.getpid():x}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return "" if made.returncode == 0 else "this container may not make network namespaces"


@dataclass
class Space:
    """One network namespace."""

    name: str
    address: str = ""  # of its way to everywhere else

    def run(self, *command: str, feed: str | None = None) -> None:
        """Runs a command inside and waits for it."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *command], input=feed, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise OSError(f"{' '.join(command)} in {self.name}: {done.stderr.strip()}")

    @property
    def prefix(self) -> list[str]:
        """Before a command that runs inside."""
        return ["ip", "netns", "exec", self.name]

    def cut(self, cut: Cut) -> contextlib.AbstractContextManager[None]:
        """Its cable carries so much less meanwhile."""
        return self._without(cut.value, cut.value)

    def cut_from(self, other: "Space") -> contextlib.AbstractContextManager[None]:
        """The two can't reach each other meanwhile, and all others can."""
        return self._without(f"ip daddr {other.address}", f"ip saddr {other.address}")

    @contextlib.contextmanager
    def _without(self, out: str, inn: str) -> Iterator[None]:
        table = f"cut{os.urandom(4).hex()}"
        self.run("nft", "-f", "-", feed=_CUT % {"name": table, "out": out, "inn": inn})
        try:
            yield
        finally:
            self.run("nft", "delete", "table", "inet", table)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread's sockets are made inside meanwhile; those that are open stay where they are."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(Path("/run/netns") / self.name)
            yield
        finally:
            _set_namespace(outside)
            os.close(outside)


@dataclass
class Router:
    """A router whose outside interface is `wan`; hosts hang on `lan`."""

    space: Space
    number: int

    def behave(self, behaviour: Behaviour) -> None:
        """Other rules from now on; what was tracked under the old ones is forgotten, as by a restart."""
        self.space.run("nft", "-f", "-", feed="flush ruleset\n" + "".join(behaviour.value))
        self.forget()

    def forget(self) -> None:
        """Every mapping is gone."""
        with self.space.inside(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
            kernel.settimeout(5)
            kernel.send(_DELETE_ALL_TRACKED)
            (error,) = struct.unpack("=i", kernel.recv(4096)[16:20])
            if error:
                raise OSError(-error, "can't forget tracked connections")

    @contextlib.contextmanager
    def without_udp(self) -> Iterator[None]:
        """It carries no UDP meanwhile; TCP goes on, and nothing is forgotten."""
        self.space.run("nft", "-f", "-", feed=_WITHOUT_UDP)
        try:
            yield
        finally:
            self.space.run("nft", "delete", "table", "ip", "cut")

    def move(self, address: str) -> None:
        """Another address outside, as after a new dial-in: all mappings change."""
        self.space.run("ip", "address", "del", f"{self.space.address}/16", "dev", "wan")
        self.space.run("ip", "address", "add", f"{address}/16", "dev", "wan")
        self.space.address = address
        self.forget()


class NatLab:
    """Use as a context manager. `host` stands on the internet, `home` behind a router."""

    def __init__(self) -> None:
        self._name = f"kf{os.getpid():x}{os.urandom(2).hex()}"
        self._stack = contextlib.ExitStack()
        self._ports = 0
        self._routers = 0
        self._internet = Space("")

    def __enter__(self) -> "NatLab":
        try:
            self._internet = self._space("internet")
            self._internet.run("ip", "link", "add", "bridge", "type", "bridge")
            self._internet.run("ip", "link", "set", "bridge", "up")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def callback(self, action: Callable[[], object]) -> None:
        """Something to do before the namespaces go, the latest first."""
        self._stack.callback(action)

    def host(self, name: str, *addresses: str) -> Space:
        """A machine with public addresses, given without the internet's first half: "0.1" is 10.9.0.1."""
        space = self._space(name)
        self._plug(space, "eth0")
        for address in addresses:
            space.run("ip", "address", "add", f"{INTERNET}.{address}/16", "dev", "eth0")
        space.address = f"{INTERNET}.{addresses[0]}"
        return space

    def router(self, behaviour: Behaviour) -> Router:
        self._routers += 1
        space = self._space(f"router{self._routers}")
        self._plug(space, "wan")
        space.address = f"{INTERNET}.1.{self._routers}"
        space.run("ip", "address", "add", f"{space.address}/16", "dev", "wan")
        space.run("ip", "link", "add", "lan", "type", "bridge")
        space.run("ip", "address", "add", f"192.168.{self._routers}.1/24", "dev", "lan")
        space.run("ip", "link", "set", "lan", "up")
        space.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        router = Router(space, self._routers)
        router.behave(behaviour)
        return router

    def home(self, name: str, router: Router, host: int = 2) -> Space:
        """A machine behind a router."""
        space = self._space(name)
        self._connect(space, "eth0", router.space, "lan")
        space.address = f"192.168.{router.number}.{host}"
        space.run("ip", "address", "add", f"{space.address}/24", "dev", "eth0")
        space.run("ip", "route", "add", "default", "via", f"192.168.{router.number}.1")
        return space

    # ---- Private

    def _space(self, name: str) -> Space:
        space = Space(f"{self._name}-{name}")
        subprocess.run(["ip", "netns", "add", space.name], check=True, capture_output=True)
        self._stack.callback(subprocess.run, ["ip", "netns", "del", space.name], check=False, capture_output=True)
        space.run("ip", "link", "set", "lo", "up")
        return space

    def _plug(self, space: Space, interface: str) -> None:
        self._connect(space, interface, self._internet, "bridge")

    def _connect(self, space: Space, interface: str, other: Space, bridge: str) -> None:
        """A cable from an interface of one namespace to a bridge in another."""
        self._ports += 1
        port = f"port{self._ports}"
        space.run("ip", "link", "add", interface, "type", "veth", "peer", "name", port, "netns", other.name)
        other.run("ip", "link", "set", port, "master", bridge, "up")
        space.run("ip", "link", "set", interface, "up")


def _enter(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _set_namespace(descriptor)
    finally:
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    """Moves this thread; `os.setns` comes with Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "can't enter the network namespace")
