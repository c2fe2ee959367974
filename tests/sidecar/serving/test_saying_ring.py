"""Given ids through the whole head: what a client is sent is what they say, exactly."""

import json
from pathlib import Path

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.sidecar.serving.stages import NAMES, answer, ask, party
from tests.support.saying import BLOCKS, saying_folder
from tests.support.vocabularies import vocabulary

pytestmark = pytest.mark.mlx

SAID = "日語\n ifb  the quick 🐫🐫 don't <td>\n\n\naaaa"
CHAT = "\x02kafila1 " + json.dumps({"messages": [{"role": "user", "content": "Say it! <|answer|>"}]}) + "\x03"
CUTS = (0, 1, BLOCKS)


@pytest.mark.parametrize("kind", ["byte_level", "keeping_spaces", "sentencepiece_bpe"])
async def test_ids_when_said_through_a_ring_then_shown_exactly(tmp_path: Path, kind: str) -> None:
    folder = vocabulary(tmp_path / "model", kind)
    ids = Tokenizer.load(folder).backend.encode(SAID, add_special_tokens=False).ids
    saying_folder(folder, ids, padding=7)
    async with party(folder, tmp_path / "data", *NAMES[:2]) as made:
        await made.serve(CUTS, NAMES[:2])
        sent, last = await answer(made["ada"], ask(CHAT, num_predict=200))
        stopped, _ = await answer(made["ada"], ask(CHAT, stop=["quick"], num_predict=200))
        cut, _ = await answer(made["ada"], ask("<|answer|>", num_predict=1))
    assert "".join(json.loads(frame)["c"] for frame in sent.split("\x1e")[1:]) == SAID
    assert (last.done_reason, last.output_tokens) == (pb.DONE_REASON_STOP, len(ids) + 1)
    assert "".join(json.loads(frame)["c"] for frame in stopped.split("\x1e")[1:]) == SAID.partition("quick")[0]
    assert SAID.startswith(cut.removeprefix(" "))  # after a raw prompt a first space is part of the text
