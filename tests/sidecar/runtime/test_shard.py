import gc
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.errors import InvalidInput, NotFound, Refused
from kafila_sidecar.runtime.shard.arrays import pack, unpack
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from tests.exact.shards import RingOfShards, load_shard, over_the_wire, tensors_for
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

PROMPT = list(range(5, 25))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "llama")


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
def test_state_when_packed_and_unpacked_then_bit_for_bit(dtype: mx.Dtype) -> None:
    array = mx.random.normal((2, 3, 5)).astype(dtype)
    state = pack(array.transpose(1, 0, 2), position=7)
    assert (state.shape, state.position, state.nbytes) == ((3, 2, 5), 7, array.nbytes)
    again = unpack(over_the_wire(state))
    assert again.dtype == dtype
    assert mx.array_equal(again, array.transpose(1, 0, 2))


def test_caches_when_released_then_no_byte_is_left(folder: Path) -> None:
    ring = RingOfShards(folder, (0, 2, 6))
    empty = mx.get_active_memory()
    for sequence in (1, 2):
        ring.greedy(PROMPT, 3, 16, sequence)
    assert [shard.active for shard in ring.shards] == [2, 2]
    assert mx.get_active_memory() > empty
    for sequence in (1, 2):
        ring.release(sequence)
    gc.collect()
    assert [shard.active for shard in ring.shards] == [0, 0]
    assert mx.get_active_memory() <= empty


def test_shard_when_closed_then_its_weights_are_gone(folder: Path) -> None:
    before = mx.get_active_memory()
    shard = load_shard(folder, 0, 6, head=True)
    assert mx.get_active_memory() >= before + shard.weight_bytes
    shard.close()
    assert mx.get_active_memory() <= before


@pytest.mark.parametrize("first", [(0, 6, True), (0, 2, True), (0, 4, False), (3, 6, False), (4, 4, False)], ids=str)
@pytest.mark.parametrize("then", [(0, 3, True), (2, 5, False), (0, 6, True)], ids=str)
@pytest.mark.parametrize("bits", [0, 4])
def test_shard_when_it_takes_over_from_another_then_bit_for_bit_as_if_loaded_anew(
    folder: Path, first: tuple[int, int, bool], then: tuple[int, int, bool], bits: int
) -> None:
    before = load_shard(folder, *first, bits=bits)
    anew, over = load_shard(folder, *then, bits=bits), load_shard(folder, *then, bits=bits, before=before)
    state = pack(mx.random.normal((1, 5, anew.entry.width)), 0)
    is_head = then[2]
    sent = [shard.embed_and_blocks(1, PROMPT) if is_head else shard.run_blocks(1, state) for shard in (anew, over)]
    assert bytes(sent[1].payload) == bytes(sent[0].payload)
    assert over.weight_bytes == anew.weight_bytes


def test_shard_when_loaded_then_holds_its_own_tensors_and_no_more(folder: Path) -> None:
    before = mx.get_active_memory()
    shard = load_shard(folder, 2, 4, head=False)
    arrays: Any = mx.load(str(folder / "model-00001-of-00003.safetensors"))
    for file in (2, 3):
        arrays |= mx.load(str(folder / f"model-0000{file}-of-00003.safetensors"))
    wanted = {name for names in tensors_for(folder, 2, 4, head=False).values() for name in names}
    assert shard.weight_bytes == sum(arrays[name].nbytes for name in wanted)
    del arrays
    assert mx.get_active_memory() - before <= 1.1 * shard.weight_bytes


def test_frame_when_out_of_order_then_refused(folder: Path) -> None:
    ring = RingOfShards(folder, (0, 3, 6))
    first = over_the_wire(ring.shards[0].embed_and_blocks(1, PROMPT))
    second = over_the_wire(ring.shards[0].embed_and_blocks(1, [9]))
    with pytest.raises(NotFound):
        ring.shards[1].run_blocks(1, second)
    ring.shards[1].run_blocks(1, first)
    with pytest.raises(InvalidInput):
        ring.shards[1].run_blocks(1, first)
    ring.shards[1].absorb(1, second)
    assert ring.shards[1].position(1) == len(PROMPT) + 1
    ring.release()
    with pytest.raises(NotFound):
        ring.shards[0].norm_and_head(1, second)


def test_frame_when_of_another_width_then_refused(folder: Path) -> None:
    shard = load_shard(folder, 3, 6, head=False)
    with pytest.raises(InvalidInput):
        shard.run_blocks(1, HiddenState(bytes(4 * 8), "float32", (1, 1, 8), 0))
    assert shard.active == 0


def test_logits_when_asked_for_every_token_then_the_last_row_is_the_last_tokens(folder: Path) -> None:
    shard = load_shard(folder, 0, 6, head=True)
    state = shard.embed_and_blocks(1, PROMPT)
    every, last = shard.norm_and_head(1, state, last_only=False), shard.norm_and_head(1, state)
    assert every.shape == (len(PROMPT), last.size)
    assert mx.allclose(every[-1], last, rtol=1e-5, atol=1e-5)


def with_holes(source: Path, target: Path, start: int, end: int, head: bool) -> dict[Path, list[str]]:
    """The shard's tensors in sparse files named .partial, with NaN where a tensor isn't ours."""
    target.mkdir()
    shutil.copy(source / "config.json", target)
    files: dict[Path, list[str]] = {}
    for path, names in tensors_for(source, start, end, head).items():
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        holed = bytearray(raw[: 8 + size] + b"\xff" * (len(raw) - 8 - size))
        for name in names:
            begin, stop = (8 + size + offset for offset in header[name]["data_offsets"])
            holed[begin:stop] = raw[begin:stop]
        partial = target / f"{path.name}.partial"
        partial.write_bytes(holed)
        files[partial] = names
    return files


@pytest.mark.parametrize("cuts", [(0, 2, 4, 6), (0, 1, 5, 6)], ids=str)
def test_shards_when_loaded_from_files_with_holes_then_nothing_of_the_holes_is_used(
    folder: Path, tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    ring, whole = RingOfShards(folder, cuts), RingOfShards(folder, (0, 6))
    for place, (start, end) in enumerate(pairwise(cuts)):
        files = with_holes(folder, tmp_path / str(place), start, end, place == 0)
        ring.shards[place] = Shard.load(
            folder=tmp_path / str(place), files=files, start=start, end=end, head=place == 0
        )
    ours, theirs = ring.greedy(PROMPT, 5, 16), whole.greedy(PROMPT, 5, 16)
    assert all(mx.array_equal(a, b) for (_, a), (_, b) in zip(ours, theirs, strict=True))


def test_shard_when_a_tensor_was_not_fetched_then_refused(folder: Path) -> None:
    files = tensors_for(folder, 2, 4, head=False)
    path, names = next(iter(files.items()))
    with pytest.raises(Refused, match=names[0]):
        Shard.load(folder=folder, files=files | {path: names[1:]}, start=2, end=4, head=False)
    with pytest.raises(Refused):
        Shard.load(folder=folder, files={}, start=2, end=4, head=False)


@pytest.mark.parametrize(("start", "end", "head"), [(2, 7, False), (3, 2, False), (1, 2, True), (-1, 2, False)])
def test_shard_when_its_blocks_are_no_part_of_the_model_then_refused(
    folder: Path, start: int, end: int, head: bool
) -> None:
    with pytest.raises(Refused):
        Shard.load(folder=folder, files={}, start=start, end=end, head=head)


@pytest.mark.parametrize(
    "change",
    [{"hidden_size": 32}, {"model_type": "gpt5"}, {"num_attention_heads": None}, {"model_file": "x.py"}],
    ids=str,
)
def test_shard_when_the_configuration_is_wrong_then_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    config = json.loads((folder / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None})
    )
    with pytest.raises(Refused):
        Shard.load(folder=tmp_path, files=tensors_for(folder, 2, 4, head=False), start=2, end=4, head=False)
