"""Where else this machine could open a room for a session whose rendezvous is gone."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from kafila_sidecar.session.rendezvous.address import RendezvousAddress


@dataclass(frozen=True, slots=True)
class OfferedRendezvous:
    """`at_host`: this machine embeds it. `note`: a sentence on who can reach it."""

    address: RendezvousAddress
    at_host: bool
    note: str = ""


Elsewhere = Callable[[], AsyncGenerator[OfferedRendezvous, None]]
"""Gives them one after the other, the best first, each only when it is wanted; closed once one is taken or none is
wanted. Raises KafilaError where one fails."""


async def nowhere() -> AsyncGenerator[OfferedRendezvous, None]:
    """None is to be had."""
    return
    yield
