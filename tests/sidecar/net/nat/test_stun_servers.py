"""Which servers are asked."""

import pytest

from kafila_proto import rendezvous_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.nat.behaviour import StunServer
from kafila_sidecar.net.nat.stun_servers import find_servers, parse_servers


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ()),
        ("stun.example.net", (("stun.example.net", 3478),)),
        ("stun.example.net:19302, 192.0.2.7:3479", (("stun.example.net", 19302), ("192.0.2.7", 3479))),
        ("[2001:db8::7]:5000", (("2001:db8::7", 5000),)),
        ("[2001:db8::7]", (("2001:db8::7", 3478),)),
        ("2001:db8::7", (("2001:db8::7", 3478),)),
    ],
)
def test_parse_when_well_formed_then_hosts_and_ports(text: str, wanted: tuple[Address, ...]) -> None:
    assert parse_servers(text) == wanted


@pytest.mark.parametrize("text", [":3478", "host:", "host:0", "host:65536", "host:x", "host:³"])
def test_parse_when_malformed_then_invalid_input_names_it(text: str) -> None:
    with pytest.raises(InvalidInput, match="KAFILA_STUN"):
        parse_servers(text)


async def test_find_when_the_rendezvous_has_two_addresses_then_all_places_are_known() -> None:
    udp = pb.UdpPlace(host="127.0.0.1", port=7770, alternate_port=7771, alternate_host="127.0.0.2")
    found = await find_servers("localhost", udp, [("127.0.0.3", 3478)])
    assert found.servers == (StunServer("127.0.0.1", 7770, 7771, "127.0.0.2"), StunServer("127.0.0.3", 3478))
    assert found.unresolved == ()


async def test_find_when_the_rendezvous_names_no_host_then_the_one_it_was_reached_at() -> None:
    found = await find_servers("127.0.0.1", pb.UdpPlace(port=7770, alternate_port=7771), [])
    assert found.servers == (StunServer("127.0.0.1", 7770, 7771, None),)


async def test_find_when_a_name_leads_nowhere_or_to_another_family_then_it_is_told() -> None:
    further = [("no-such-name.invalid", 3478), ("2001:db8::7", 3478)]
    found = await find_servers("127.0.0.1", pb.UdpPlace(port=7770), further)
    assert len(found.servers) == 1
    assert found.unresolved == ("no-such-name.invalid", "2001:db8::7")


async def test_find_when_there_is_no_rendezvous_then_the_further_ones_only() -> None:
    assert (await find_servers(None, None, [("127.0.0.1", 3478)])).servers == (StunServer("127.0.0.1", 3478),)


NO_PLACES = [
    pb.UdpPlace(port=70_000),
    pb.UdpPlace(port=7770, alternate_port=70_000),
    pb.UdpPlace(port=7770, host="evil.example"),
    pb.UdpPlace(port=7770, alternate_port=7771, alternate_host="evil.example"),
    pb.UdpPlace(port=7770, alternate_port=7771, alternate_host="0.0.0.0"),
    pb.UdpPlace(port=7770, host="224.0.0.1"),
]


@pytest.mark.parametrize("udp", NO_PLACES)
async def test_find_when_what_the_rendezvous_says_makes_no_sense_then_as_if_it_had_no_udp_and_logged_once(
    udp: pb.UdpPlace, caplog: pytest.LogCaptureFixture
) -> None:
    found = await find_servers("127.0.0.1", udp, [("127.0.0.3", 3478)])
    assert found.servers == (StunServer("127.0.0.3", 3478),)
    assert len(caplog.records) == 1
    assert "evil" not in caplog.text
