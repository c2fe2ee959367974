"""Noticing another network."""

from kafila_sidecar.net.candidates import Interface
from kafila_sidecar.net.nat.watch import NetworkWatch


def interfaces(*addresses: str, **others: str) -> list[Interface]:
    return [
        Interface("wlan0", True, addresses),
        *(Interface(name, True, (address,)) for name, address in others.items()),
    ]


HOME, OFFICE = interfaces("192.168.1.5"), interfaces("10.20.0.7")


def test_look_when_the_address_changes_then_true_once_it_has_settled() -> None:
    watch = NetworkWatch(HOME)
    assert [watch.look(now) for now in (HOME, OFFICE, OFFICE, OFFICE)] == [False, False, True, False]


def test_look_when_addresses_come_one_by_one_then_true_after_the_last() -> None:
    watch = NetworkWatch(HOME)
    both = interfaces("10.20.0.7", "2001:db8::7")
    looks = [interfaces(), OFFICE, both, both, both]
    assert [watch.look(now) for now in looks] == [False, False, False, True, False]


def test_look_when_the_network_is_gone_for_a_moment_then_false() -> None:
    watch = NetworkWatch(HOME)
    assert not any(watch.look(now) for now in (interfaces(), HOME, HOME, HOME))


def test_look_when_only_a_container_comes_then_false() -> None:
    watch = NetworkWatch(HOME)
    with_docker = interfaces("192.168.1.5", docker0="172.17.0.1")
    assert not any(watch.look(with_docker) for _ in range(4))
