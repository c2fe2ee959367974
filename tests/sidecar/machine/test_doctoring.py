"""The doctor against a real rendezvous on loopback."""

import pytest

from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import serve
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.machine.doctoring import examine
from kafila_sidecar.net.portmap.mapping import MappingOffer


async def no_offer() -> None:
    return None


async def an_offer() -> MappingOffer:
    return MappingOffer("NAT-PMP", "8.8.4.4")


async def test_examine_when_the_rendezvous_answers_then_everything_is_measured() -> None:
    async with serve(RendezvousConfig(port=0, key_pair=make_key_pair())) as serving:
        reply = await examine(
            rendezvous=f"127.0.0.1:{serving.port}#{serving.fingerprint}", stun="", ask_router=an_offer
        )
    assert (reply.udp, reply.mapping, reply.mapping_is_assumed) == ("passes", "endpoint-independent", True)
    assert reply.reach == "permissive"
    assert len(reply.direct_with) == 3
    assert 0 < reply.rtt_s < 1
    assert abs(reply.clock_ahead_s) < 1
    assert reply.mapped_address.startswith("127.0.0.1:")
    assert list(reply.addresses)
    assert reply.rendezvous_here == "everybody"
    assert f"127.0.0.1:{serving.port} answers in" in reply.text
    assert [f.sentence for f in reply.findings if f.level == "problem"] == []


async def test_examine_when_nothing_listens_there_then_a_finding_and_no_error() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        port = serving.port
    reply = await examine(rendezvous=f"grpc+insecure://127.0.0.1:{port}", stun="", ask_router=no_offer)
    assert reply.udp == "unknown"
    problem = next(f for f in reply.findings if f.topic == "Rendezvous")
    assert problem.level == "problem"
    assert "does not answer" in problem.sentence


async def test_examine_when_no_rendezvous_is_configured_then_stun_servers_tell() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        one, other = serving.udp_ports
        reply = await examine(rendezvous="", stun=f"127.0.0.1:{one},127.0.0.1:{other}", ask_router=no_offer)
    assert (reply.udp, reply.mapping) == ("passes", "endpoint-independent")
    assert "none is configured" in reply.text


@pytest.mark.parametrize(("rendezvous", "stun"), [("nonsense", ""), ("", "host:0")])
async def test_examine_when_a_setting_can_not_be_read_then_invalid_input(rendezvous: str, stun: str) -> None:
    with pytest.raises(InvalidInput):
        await examine(rendezvous=rendezvous, stun=stun, ask_router=no_offer)
