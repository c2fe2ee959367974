"""Comes to a session by its code, wherever its rendezvous is."""

from functools import partial

from kafila_sidecar.errors import NotFound
from kafila_sidecar.machine.nearby.finding import find
from kafila_sidecar.machine.nearby.service import own_networks
from kafila_sidecar.session import join as joining
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code

_NOBODY_NEAR = (
    "no session {room} is found on this network: if it is elsewhere, or the network passes no announcements on (mDNS), "
    "ask for the whole code, with @ and an address"
)


async def approach_by(
    code: Code, *, place: RendezvousAddress | None, asks_network: bool, name: str, local: Local
) -> joining.Approach:
    """By the code's own address, else the rendezvous at `place`, else whoever on this network has its number.

    Raises as `joining.approach` does.
    """
    approach = partial(joining.approach, name=name, local=local)
    if code.address is not None or not asks_network:
        return await approach(code=code.at(place) if place else code)
    missing = NotFound(_NOBODY_NEAR.format(room=code.room))
    if place:
        try:
            return await approach(code=code.at(place))
        except NotFound as error:  # the host may have another one, of its own
            missing = error
    if (found := await find(code.room, own_networks())) is None:
        raise missing
    return await approach(code=code.at(found), is_hearsay=True)
