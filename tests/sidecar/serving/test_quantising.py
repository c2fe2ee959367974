"""Members that pack a 16-bit checkpoint's blocks while they load them, each its own."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model, quantize_model
from tokenizers import Tokenizer

from kafila_sidecar.machine.measuring import Measuring
from kafila_sidecar.models.quantisation import MADE_HERE_GROUP
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.making import quick
from kafila_sidecar.weights.checkpoint import open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from tests.sidecar.serving.stages import answer, ask, packed, party
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

PROMPT = "once upon a time"
TOKENS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama in bfloat16, of a seed whose answer goes from one letter to another, at places that its bits change."""
    return tiny_folder(tmp_path_factory.mktemp("models") / "bf16", dtype="bf16", seed=21, config={"eos_token_id": 258})


def converted(folder: Path, bits: int) -> str:
    """What mlx-lm alone says, with the weights that its convert makes of the folder; 0 bits: as they are."""
    model, config = load_model(folder)
    if bits:
        model, _ = quantize_model(model, config, MADE_HERE_GROUP, bits)
    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    given = mx.array(tokenizer.encode(PROMPT).ids)
    tokens = [int(token) for token, _ in generate_step(given, model, max_tokens=TOKENS)]
    return str(tokenizer.decode(tokens))


@pytest.mark.parametrize("bits", [4, 8])
async def test_ring_when_members_quantise_while_loading_then_the_text_of_mlx_lms_converted_weights(
    folder: Path, tmp_path: Path, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "LEAST_TOKENS", 1 << 20)  # mlx-lm's own arithmetic for the prompt, too
    expected = converted(folder, bits)
    async with party(folder, tmp_path, "ada", "bob", bits=bits) as made:
        for cuts, order in (((0, 3, 6), ("ada", "bob")), ((0, 1, 6), ("bob", "ada")), ((0, 5, 6), ("bob", "ada"))):
            await made.serve(cuts, order)
            for name in ("ada", "bob"):
                assert (await answer(made[name], ask(PROMPT, num_predict=TOKENS)))[0] == expected
            await made.until_free()
            await made.stop()
    assert expected != converted(folder, 0)


async def test_member_when_it_will_quantise_then_it_measures_blocks_of_the_packed_size(
    folder: Path, tmp_path: Path
) -> None:
    mlx = MlxThread()
    plain = await open_checkpoint(str(folder), hub=Hub(endpoint="http://127.0.0.1:9"), cache=tmp_path)
    checkpoint = await packed(plain, mlx, 4)
    entry, _ = await Measuring(mlx=mlx, folder=tmp_path, reserved=lambda: 0).member(checkpoint, lend_bytes=0)
    mlx.close()
    held_bytes = checkpoint.anatomy.blocks[0].held_bytes
    assert round(entry["bandwidth_bytes_per_s"] * entry["block_s"]["1"]) == held_bytes < plain.sizes["block_bytes"]
    names = list(plain.manifest.tensors)
    assert checkpoint.shard_bytes(names) == plain.shard_bytes(names)
    assert checkpoint.unpacked_block_bytes == plain.sizes["block_bytes"]
    assert json.loads((folder / "config.json").read_text()) == checkpoint.config
