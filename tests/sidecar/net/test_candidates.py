"""Host candidates, priorities, and what is refused from a peer."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.net.candidates import (
    HOST,
    MAX_CANDIDATES,
    PEER_REFLEXIVE,
    RELAYED,
    SERVER_REFLEXIVE,
    Candidate,
    Interface,
    address_candidate,
    from_proto,
    host_candidates,
    priority,
    system_interfaces,
    to_proto,
)

MACHINE = [
    Interface("lo", True, ("127.0.0.1", "::1")),
    Interface("docker0", True, ("172.17.0.1",)),
    Interface("veth12ab", True, ("172.18.0.1",)),
    Interface("wlan0", False, ("192.168.7.7",)),
    Interface("eth0", True, ("192.168.1.4", "2001:db8::4", "fe80::1%eth0")),
    Interface("bridge0", True, ("169.254.3.3",)),
    Interface("wg0", True, ("10.9.0.2",)),
]


def addresses(candidates: list[Candidate]) -> list[str]:
    return [candidate.address for candidate in candidates]


def test_host_candidates_when_a_machine_has_many_interfaces_then_the_useful_ones_come_best_first() -> None:
    found = host_candidates(7, MACHINE, ipv6=True)
    assert addresses(found) == ["192.168.1.4", "10.9.0.2", "2001:db8::4", "169.254.3.3", "127.0.0.1", "::1"]
    assert {candidate.port for candidate in found} == {7}
    assert {candidate.kind for candidate in found} == {HOST}


def test_host_candidates_when_the_socket_has_no_ipv6_then_there_is_none() -> None:
    assert addresses(host_candidates(7, MACHINE, ipv6=False)) == ["192.168.1.4", "10.9.0.2", "169.254.3.3", "127.0.0.1"]


def test_host_candidates_when_two_interfaces_share_an_address_then_it_comes_once() -> None:
    twice = [Interface("eth0", True, ("10.0.0.1",)), Interface("eth1", True, ("10.0.0.1", "10.0.0.2"))]
    assert addresses(host_candidates(7, twice, ipv6=True)) == ["10.0.0.1", "10.0.0.2"]


def test_host_candidates_when_there_are_too_many_then_the_best_stay() -> None:
    many = [Interface(f"eth{i}", True, (f"10.0.0.{i}",)) for i in range(100)]
    found = host_candidates(7, [MACHINE[0], *many], ipv6=True)
    assert addresses(found) == [f"10.0.0.{i}" for i in range(MAX_CANDIDATES)]


def test_host_candidates_when_read_from_this_machine_then_loopback_is_there_and_last() -> None:
    found = host_candidates(7, system_interfaces(), ipv6=False)
    assert found[-1].address == "127.0.0.1"
    assert [c.priority for c in found] == sorted((c.priority for c in found), reverse=True)


def test_priority_when_kinds_differ_then_host_beats_reflexive_beats_relayed_at_any_local_preference() -> None:
    worst = [priority(kind, 0) for kind in (HOST, PEER_REFLEXIVE, SERVER_REFLEXIVE, RELAYED)]
    best = [priority(kind, 65535) for kind in (HOST, PEER_REFLEXIVE, SERVER_REFLEXIVE, RELAYED)]
    assert all(worst[i] > best[i + 1] for i in range(3))
    assert priority(HOST, 65535) == 2130706431  # RFC 8445's example value


def test_address_candidate_when_bound_to_one_address_then_it_is_that_one() -> None:
    assert address_candidate(("192.0.2.5", 9)).target == ("192.0.2.5", 9)
    with pytest.raises(InvalidInput):
        address_candidate(("fe80::1", 9))


def test_candidates_when_announced_then_the_peer_reads_the_same() -> None:
    found = host_candidates(7, MACHINE, ipv6=True)
    wire = to_proto(found).SerializeToString()
    assert from_proto(ring_pb2.Candidates.FromString(wire)) == found


@pytest.mark.parametrize(
    ("kind", "address", "port"),
    [
        pytest.param("host", "192.0.2.1", 0, id="port-zero"),
        pytest.param("host", "192.0.2.1", 65536, id="port-too-large"),
        pytest.param("host", "example.org", 7, id="a-name"),
        pytest.param("host", "", 7, id="empty"),
        pytest.param("host", "0.0.0.0", 7, id="unspecified"),
        pytest.param("host", "224.0.0.1", 7, id="multicast"),
        pytest.param("host", "ff02::1", 7, id="multicast-6"),
        pytest.param("host", "255.255.255.255", 7, id="broadcast"),
        pytest.param("host", "::ffff:192.0.2.1", 7, id="mapped"),
        pytest.param("host", "fe80::1%eth0", 7, id="zone"),
        pytest.param("host", "100::1", 1, id="a-channel-at-the-relay"),
        pytest.param("peer-reflexive", "192.0.2.1", 7, id="never-announced"),
        pytest.param("relayed", "192.0.2.1", 7, id="each-ends-own"),
        pytest.param("x" * 100, "192.0.2.1", 7, id="unknown-kind"),
    ],
)
def test_candidate_when_nobody_could_be_there_then_it_is_refused(kind: str, address: str, port: int) -> None:
    message = ring_pb2.Candidates(candidates=[ring_pb2.Candidate(kind=kind, address=address, port=port, priority=1)])
    with pytest.raises(InvalidInput):
        from_proto(message)


def test_candidates_when_more_than_the_limit_come_then_they_are_refused() -> None:
    one = ring_pb2.Candidate(kind="host", address="192.0.2.1", port=7, priority=1)
    with pytest.raises(InvalidInput, match="33"):
        from_proto(ring_pb2.Candidates(candidates=[one] * 33))
