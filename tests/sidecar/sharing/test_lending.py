"""What a member may ask for: units of the session's checkpoint, so many at once, and nothing else."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Exhausted, InvalidInput, KafilaError, Refused
from kafila_sidecar.net.link.stream import StreamKind
from kafila_sidecar.sharing.borrowing import ask_for, told_by
from kafila_sidecar.sharing.lending import MOST_ASKED_BYTES, MOST_STREAMS_EACH, MOST_UNITS, parsed
from kafila_sidecar.weights.format.units import Unit, units_in
from tests.sidecar.sharing.lab import REPO, LabMember, lab
from tests.support import fuzz
from tests.support.model_host import ModelHost

Make = Callable[..., Path]


@pytest.fixture
def host(checkpoint_folder: Make) -> Iterator[ModelHost]:
    with ModelHost({REPO: checkpoint_folder(width=64)}) as host:
        yield host


def units(member: LabMember) -> list[Unit]:
    return units_in(member.checkpoint.manifest, member.checkpoint.held)


async def answered(ada: LabMember, bob: LabMember, ask: bytes) -> list[ring_pb2.WeightsTold]:
    """Everything that ada tells bob. Raises what it refuses with."""
    stream = await bob.standing.to("ada").open(StreamKind.WEIGHTS)
    await stream.send(ask)
    told: list[ring_pb2.WeightsTold] = []
    while True:
        try:
            told.append(await told_by(stream))
        except Refused as end:
            if "stopped before all was there" in str(end):
                return told
            raise


def asked(member: LabMember, wanted: list[Unit]) -> bytes:
    return ask_for(member.checkpoint.revision, sorted(member.checkpoint.manifest.files), wanted)


Hostile = Callable[[LabMember], bytes]
HOSTILE: dict[str, tuple[Hostile, type[KafilaError], str]] = {
    "nonsense": (lambda ada: b"\xff\xff\xff", InvalidInput, "can't be read"),
    "nothing": (lambda ada: b"", InvalidInput, "no weights"),
    "another revision": (
        lambda ada: ask_for("0" * 40, sorted(ada.checkpoint.manifest.files), units(ada)),
        Refused,
        "another revision",
    ),
    "a file that there is not": (
        lambda ada: ring_pb2.WeightsAsk(
            units=ring_pb2.Units(revision=ada.checkpoint.revision, units=[ring_pb2.Unit(file=9, start=0, end=8)])
        ).SerializeToString(),
        InvalidInput,
        "files that there are not",
    ),
    "the header": (lambda ada: asked(ada, [units(ada)[0]._replace(start=0)]), InvalidInput, "no unit"),
    "half a unit": (
        lambda ada: asked(ada, [units(ada)[0]._replace(end=units(ada)[0].start + 1)]),
        InvalidInput,
        "unit",
    ),
    "bytes past the end": (lambda ada: asked(ada, [units(ada)[-1]._replace(end=1 << 62)]), InvalidInput, "no unit"),
    "too many": (lambda ada: asked(ada, [units(ada)[0]] * (MOST_UNITS + 1)), InvalidInput, f"more than {MOST_UNITS}"),
    "the description of no folder": (
        lambda ada: ring_pb2.WeightsAsk(describe=ring_pb2.Describe()).SerializeToString(),
        Refused,
        "is no folder",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_ask_when_it_is_out_of_bounds_then_refused_in_words_and_the_next_one_is_answered(
    host: ModelHost, tmp_path: Path, name: str
) -> None:
    make, error, sentence = HOSTILE[name]
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        with pytest.raises(error, match=sentence):
            await answered(ada, bob, make(ada))
        told = await answered(ada, bob, asked(ada, units(ada)[:1]))
        assert sum(len(part.data) for part in told) == units(ada)[0].size_bytes


async def test_ask_when_a_unit_is_not_here_then_that_is_said_and_the_others_come(
    host: ModelHost, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.blocks(0, 1))
        here = units(ada)
        tensor = ada.checkpoint.manifest.tensors["model.norm.weight"]
        told = await answered(ada, bob, asked(ada, [here[0], Unit(tensor.file, tensor.start, tensor.end), here[1]]))
        kinds = [part.WhichOneof("told") for part in told]
        assert kinds.count("absent") == 1
        assert kinds.count("vouched") == 2


async def test_asks_when_one_member_makes_many_at_once_then_the_further_ones_are_refused(
    host: ModelHost, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        ada.lender._busy["bob"] = MOST_STREAMS_EACH
        with pytest.raises(Exhausted, match="ask again in a moment"):
            await answered(ada, bob, asked(ada, units(ada)[:1]))
        ada.lender._busy["bob"] = 0
        assert await answered(ada, bob, asked(ada, units(ada)[:1]))


async def test_ask_when_it_would_be_too_many_bytes_then_refused_before_anything_is_read(
    host: ModelHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila_sidecar.sharing.lending.MOST_ASKED_BYTES", 100)
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        with pytest.raises(InvalidInput, match="bytes at once"):
            await answered(ada, bob, asked(ada, units(ada)))
        assert ada.lender.lent_bytes == 0
    assert MOST_ASKED_BYTES < 64 << 20


@pytest.mark.fuzz
def test_asks_when_hostile_then_only_typed_errors() -> None:
    unit = ring_pb2.Unit(file=1, start=2, end=3)
    samples = [
        ring_pb2.WeightsAsk(units=ring_pb2.Units(revision="r", units=[unit])).SerializeToString(),
        ring_pb2.WeightsAsk(describe=ring_pb2.Describe()).SerializeToString(),
    ]
    fuzz.fuzz(parsed, samples)
