"""Members on machines of their own, each in a network namespace on a small internet, so that their cables can be cut.

Without root they share this machine's loopback, and nothing can be cut. The model's folder is on everybody's disk, so
that nobody who takes over for somebody else has to fetch anything.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.natlab import NatLab, Space, missing

FIRST_HOST = 11  # the last number of the first machine's address


@contextmanager
def machines(*names: str, folder: Path, below: Path) -> Iterator[tuple[Cluster, dict[str, Space]]]:
    """A cluster, and the space of each member by name; no spaces where there can be none."""
    below.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(below)
    if missing():
        with cluster:
            cluster.start_rendezvous()
            for name in names:
                cluster.start_member(name, KAFILA_FOLDERS=str(folder.parent))
            yield cluster, {}
        return
    with NatLab() as lab:
        lab.callback(cluster.stop)
        server = lab.host("rendezvous", "0.1")
        with server.inside():
            cluster.start_rendezvous(server.address)
        spaces = {name: lab.host(name, f"0.{number}") for number, name in enumerate(names, FIRST_HOST)}
        for name, space in spaces.items():
            cluster.start_member(name, space.inside, KAFILA_FOLDERS=str(folder.parent))
        yield cluster, spaces
