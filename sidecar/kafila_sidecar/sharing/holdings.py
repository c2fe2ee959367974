"""Who holds which bytes of a checkpoint, as the members told; and whom to ask for what. No I/O."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination.messages import MOST_SPANS
from kafila_sidecar.weights.format.ranges import Ranges, Span
from kafila_sidecar.weights.format.units import Unit


class HeldByMembers:
    """By member, and by the place of the file among the sorted names."""

    def __init__(self) -> None:
        self._told: dict[str, Mapping[int, Ranges]] = {}

    def learn(self, member: str, held: Mapping[int, Ranges]) -> None:
        self._told[member] = held

    @property
    def tellers(self) -> list[str]:
        """Who has told of what it holds."""
        return sorted(self._told)

    def members(self, names: Collection[str]) -> None:
        """What others than these hold is of no use any more."""
        self._told = {member: held for member, held in self._told.items() if member in names}

    def holders(self, file: int, unit: Unit) -> list[str]:
        """In the order of names."""
        return sorted(
            member for member, held in self._told.items() if file in held and held[file].covers(unit.start, unit.end)
        )


def share_out(holders: Mapping[Unit, Sequence[str]], linked: Collection[str]) -> dict[str, list[Unit]]:
    """Each unit to one of its holders: one to whom a link stands if there is any, and of these who has least to give so
    far, so that all give about the same."""
    given: dict[str, list[Unit]] = {}
    load: Counter[str] = Counter()
    for unit, names in holders.items():
        if not names:
            continue
        near = [name for name in names if name in linked] or list(names)
        source = min(near, key=lambda name: (load[name], name))
        given.setdefault(source, []).append(unit)
        load[source] += unit.size_bytes
    return given


def tell(held: Mapping[str, Ranges], names: Sequence[str]) -> ring_pb2.Holds:
    """`names`: of all weight files, sorted. Of too many spans the largest are told."""
    spans = [(file, span) for file, name in enumerate(names) for span in held.get(name, Ranges())]
    spans = sorted(sorted(spans, key=lambda one: one[1].start - one[1].end)[:MOST_SPANS])
    told = ring_pb2.Holds()
    by_file: dict[int, list[Span]] = {}
    for file, span in spans:
        by_file.setdefault(file, []).append(span)
    for file, of_file in by_file.items():
        told.files.add(file=file, starts=[span.start for span in of_file], ends=[span.end for span in of_file])
    return told
