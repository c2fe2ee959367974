"""A member's frames over real links: too long, too many tokens, no numbers, out of order. The stage that gets them
stays and names who sent them; a model that makes no numbers by itself ends one answer and accuses nobody."""

import json
import math
import shutil
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafila_sidecar.net.errors import PeerReset
from kafila_sidecar.net.link.stream import MAX_MESSAGE_BYTES, Stream, StreamKind
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.frames.hop import frame_of
from kafila_sidecar.serving.frames.wire import Frame, encode, most_bytes
from tests.sidecar.serving.stages import CONTEXT, STOP, StageParty, answer, ask, party, refusal, spoil
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

NAMES = ("ada", "bob", "cyd")
CUTS = (0, 2, 4, 6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says something in letters and never ends by itself."""
    return tiny_folder(tmp_path_factory.mktemp("model") / "tiny", seed=16, config={"eos_token_id": 258})


@pytest.fixture
async def linked(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    async with party(tiny, tmp_path, *NAMES) as made:
        yield made


def width_of(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["hidden_size"])


def state(width: int, tokens: int = 1, position: int = 0, value: float = 0.5) -> HiddenState:
    payload = np.full((tokens, width), value, dtype="<f4").tobytes()
    return HiddenState(payload, "float32", (1, tokens, width), position)


def frame(of: HiddenState, sequence: int = 99) -> Frame:
    return frame_of(of, epoch=1, sequence=sequence, needs_output=False)


async def sent(stream: Stream, *frames: Frame) -> None:
    """And the other end has given the stream up."""
    for one in frames:
        await stream.send(*encode(one))
    with pytest.raises(PeerReset):
        await stream.receive(5)


def named(made: StageParty) -> dict[str, list[str]]:
    """Whom each member accuses."""
    return {member.name: [by for by, _ in member.misled] for member in made.members if member.misled}


ATTACKS: dict[str, Any] = {
    "nan": lambda width: [frame(state(width, value=math.nan))],
    "infinity": lambda width: [frame(state(width, value=math.inf))],
    "another width": lambda width: [frame(state(width + 8))],
    "in the middle of a sequence": lambda width: [frame(state(width, position=7))],
    "twice": lambda width: [frame(state(width))] * 2,
    "a sequence that is too long": lambda width: [frame(state(width, 200)), frame(state(width, 200, position=200))],
    "too many sequences": lambda width: [frame(state(width), sequence) for sequence in range(100, 105)],
    "a batch": lambda width: [replace(frame(state(width, 2)), shape=(2, 1, width), tokens=1)],
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(("evil", "victim"), [("ada", "bob"), ("bob", "cyd")])
async def test_stage_when_the_one_before_breaks_the_rules_then_it_names_it_stays_and_serves_the_next_plan(
    linked: StageParty, tiny: Path, evil: str, victim: str, attack: str
) -> None:
    await linked.serve(CUTS, NAMES)
    expected, _ = await answer(linked["ada"], ask())
    stream = await linked[evil].links.to(victim).open(StreamKind.ACTIVATIONS)
    await linked[evil].stage.stop(STOP)  # its honest stream makes way
    await sent(stream, *ATTACKS[attack](width_of(tiny)))
    assert named(linked) == {victim: [evil]}
    assert [member.broken for member in linked.members] == [[], [], []]
    await linked.stop()
    assert not any(linked.held.values())
    await linked.serve(CUTS, ("cyd", "ada", "bob"))
    assert (await answer(linked["ada"], ask()))[0] == expected


async def test_head_when_the_last_stage_answers_what_was_not_asked_then_it_is_named(
    linked: StageParty, tiny: Path
) -> None:
    await linked.serve(CUTS, NAMES)
    width = width_of(tiny)
    stream = await linked["cyd"].links.to("ada").open(StreamKind.ACTIVATIONS)
    await stream.send(struct.pack("!I", 7))
    await sent(stream, frame(state(width, value=math.nan)))
    assert named(linked) == {"ada": ["cyd"]}


@pytest.mark.parametrize(("evil", "victim"), [("ada", "bob"), ("cyd", "ada")])
async def test_stage_when_a_frame_says_that_it_is_longer_than_a_chunk_then_nothing_of_it_is_kept(
    linked: StageParty, tiny: Path, evil: str, victim: str
) -> None:
    await linked.serve(CUTS, NAMES)
    longest = most_bytes(min(PREFILL_CHUNK_TOKENS, CONTEXT), width_of(tiny))
    assert longest < MAX_MESSAGE_BYTES / 16
    stream = await linked[evil].links.to(victim).open(StreamKind.ACTIVATIONS)
    stream._write(struct.pack("!I", longest + 1), flush=True)  # the length, and no byte more
    with pytest.raises(PeerReset):
        await stream.receive(5)
    assert named(linked) == {victim: [evil]}


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (("model.embed", "model.norm", "lm_head", "model.layers.0.", "model.layers.1."), "bob's blocks"),
        (("model.norm", "lm_head", "model.layers."), "the model's blocks made NaN"),
        (("model.embed", "model.layers."), "scores for the next token"),
    ],
    ids=["a stage", "the head", "logits"],
)
async def test_answer_when_weights_are_no_numbers_then_it_ends_in_words_and_nobody_is_accused(
    tiny: Path, tmp_path: Path, kept: tuple[str, ...], said: str
) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "model"))
    spoil(folder, keep=kept)
    async with party(folder, tmp_path, *NAMES) as made:
        await made.serve(CUTS, NAMES)
        for name in NAMES:
            error = await refusal(made[name], ask())
            assert error.code == NotFinite.code
            assert said in str(error)
        assert named(made) == {}
        assert [member.broken for member in made.members] == [[], [], []]
        await made.until_free()
