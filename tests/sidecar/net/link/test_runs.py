"""A batch of datagrams at a node's socket, as it is given to the links: what belongs together together, in order."""

import random

from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.link.endpoint import Endpoint, _runs
from kafila_sidecar.net.quic.connection import CID_BYTES

SOURCES: list[Address] = [("192.0.2.1", 1), ("192.0.2.2", 1)]
IDS = [b"11111111", b"22222222"]
FIRST_BYTES = {"stun": 0, "call": 4, "relay": 8, "short": 0x5A, "other short": 0x41, "long": 0xC3}


def test_runs_when_a_batch_is_mixed_then_they_are_the_batch_and_each_is_of_one_connection() -> None:
    chance = random.Random(1)
    longest = 0
    for _ in range(300):
        batch = [
            (bytes([first]) + chance.choice(IDS) + bytes(chance.randrange(9)), chance.choice(SOURCES))
            for first in chance.choices(list(FIRST_BYTES.values()), weights=[1, 1, 1, 9, 9, 1], k=chance.randrange(12))
        ] + [(b"", SOURCES[0])] * chance.randrange(2)
        runs = list(_runs(batch))
        assert [(datagram, source) for datagrams, source in runs for datagram in datagrams] == batch
        for datagrams, _ in runs:
            longest = max(longest, len(datagrams))
            if len(datagrams) > 1:
                assert {datagram[0] for datagram in datagrams} <= {FIRST_BYTES["short"], FIRST_BYTES["other short"]}
                assert len({datagram[1 : 1 + CID_BYTES] for datagram in datagrams}) == 1
    assert longest > 4


async def test_endpoint_when_a_run_is_a_strangers_then_each_datagram_of_it_counts() -> None:
    endpoint = Endpoint.open(host="127.0.0.1")
    try:
        endpoint.deliver([(bytes([FIRST_BYTES["short"]]) + IDS[0] + bytes(20), SOURCES[0])] * 3)
        assert endpoint.strangers == 3
    finally:
        await endpoint.close()
