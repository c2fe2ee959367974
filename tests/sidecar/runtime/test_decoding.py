"""What is shown is at every moment the beginning of what all ids decode to, whatever the tokenizer."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.text.decoding import REPLACEMENT, Decoding
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.vocabularies import KINDS, vocabulary

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LONGEST_CHARACTER = 4  # bytes

Load = Callable[[str], Tokenizer]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    made: dict[str, Tokenizer] = {}

    def of(kind: str) -> Tokenizer:
        if kind not in made:
            made[kind] = Tokenizer.load(vocabulary(tmp_path_factory.mktemp(kind), kind))
        return made[kind]

    return of


def decoded(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """What the `tokenizers` library makes of all ids at once. A turn's first space goes, also where it would stay."""
    text = tokenizer.backend.decode(list(ids), skip_special_tokens=False)
    drops = isinstance(tokenizer.backend.decoder, decoders.ByteLevel)
    return text[1:] if drops and text.startswith(" ") else text


def check_prefix_stable(tokenizer: Tokenizer, ids: Sequence[int]) -> None:
    """At every cut: pieces are the beginning of all that follows, and at the end all of it but half a character."""
    stream, shown = tokenizer.stream(), ""
    for count, token in enumerate(ids, 1):
        shown += stream.add(token)
        assert decoded(tokenizer, ids[:count]).startswith(shown)
        assert decoded(tokenizer, ids).startswith(shown)
    whole = [decoded(tokenizer, ids[: max(0, len(ids) - dropped)]) for dropped in range(LONGEST_CHARACTER)]
    check_whole_but_half_a_character(shown + stream.finish(), whole)


def check_whole_but_half_a_character(text: str, whole: Sequence[str]) -> None:
    """`whole`: what all ids decode to, and all but the last, and so on."""
    assert text in (whole[0], whole[0].removesuffix(REPLACEMENT), *whole[1:])
    if not whole[0].endswith(REPLACEMENT):
        assert text == whole[0]


@pytest.mark.parametrize("kind", list(KINDS))
@MANY
@given(data=st.data())
def test_random_ids_when_streamed_then_the_decode_of_all_at_every_cut(
    load: Load, kind: str, data: st.DataObject
) -> None:
    tokenizer = load(kind)
    ids = data.draw(st.lists(st.integers(0, min(tokenizer.size, 700) - 1), max_size=12))
    check_prefix_stable(tokenizer, ids)


@pytest.mark.parametrize("kind", list(KINDS))
@MANY
@given(
    text=st.text(st.sampled_from("aé日本語🐫👩‍🚀 \n▁Ġ<|>'.,\u0301\ufffd") | st.characters(codec="utf-8"), max_size=12)
)
def test_random_text_when_streamed_then_the_decode_of_all_at_every_cut(load: Load, kind: str, text: str) -> None:
    tokenizer = load(kind)
    check_prefix_stable(tokenizer, tokenizer.backend.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("kind", list(KINDS))
@MANY
@given(data=st.data())
def test_answer_when_it_goes_on_from_a_raw_prompt_then_as_if_decoded_with_it(
    load: Load, kind: str, data: st.DataObject
) -> None:
    tokenizer = load(kind)
    before = tokenizer.backend.token_to_id("a") or 5
    ids = data.draw(st.lists(st.integers(0, min(tokenizer.size, 700) - 1), max_size=8))
    decode = tokenizer.backend.decode
    prompt = decode([before], skip_special_tokens=False)

    def after(count: int) -> str:
        return str(decode([before, *ids[:count]], skip_special_tokens=False)).removeprefix(prompt)

    stream = tokenizer.stream(after_raw_prompt=True)
    text = "".join([*map(stream.add, ids), stream.finish()])
    check_whole_but_half_a_character(text, [after(max(0, len(ids) - dropped)) for dropped in range(LONGEST_CHARACTER)])


@pytest.mark.parametrize(
    "text",
    ["日語\n ifb", "a  b", " leading", "tail ", "日本語日本語", "🐫🐫", "don't , x", "\n\n\n", "…<td>a b</td>  ü"],
)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("word_piece", "without_decoder")])
def test_text_when_it_is_spelled_in_tokens_then_shown_once(load: Load, kind: str, text: str) -> None:
    tokenizer = load(kind)
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    stream = tokenizer.stream()
    shown = "".join([*map(stream.add, ids), stream.finish()])
    assert shown == decoded(tokenizer, ids)
    if kind in ("byte_level", "ignoring_merges", "smollm2"):
        assert shown == text.removeprefix(" ")


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback", "keeping_spaces", "sentencepiece_bpe"])
def test_answer_when_it_ends_within_a_character_then_before_it(load: Load, kind: str, cut: int) -> None:
    tokenizer = load(kind)
    ids = tokenizer.backend.encode("x\U0001f9ff", add_special_tokens=False).ids
    stream = tokenizer.stream()
    assert "".join([*map(stream.add, ids[:-cut]), stream.finish()]) == "x"


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.CTC(),
        decoders.BPEDecoder(),
        decoders.Sequence([decoders.Fuse(), decoders.Metaspace()]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
        decoders.Sequence([decoders.ByteLevel(), decoders.ByteLevel()]),
    ],
    ids=str,
)
def test_decoder_when_not_known_then_refused(decoder: decoders.Decoder) -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    backend.decoder = decoder
    with pytest.raises(Refused, match="decoder"):
        Decoding.of(backend)


def test_decoder_when_changed_in_the_file_then_followed(tmp_path: Path) -> None:
    folder = vocabulary(tmp_path, "byte_fallback")
    described = json.loads((folder / "tokenizer.json").read_text())
    described["decoder"]["decoders"][-1]["start"] = 2
    (folder / "tokenizer.json").write_text(json.dumps(described))
    tokenizer = Tokenizer.load(folder)
    check_prefix_stable(tokenizer, [tokenizer.backend.token_to_id(token) or 0 for token in ("▁", "▁", "▁", "a")])
