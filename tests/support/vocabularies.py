"""Small tokenizers of every kind that checkpoints bring, as folders: trained on a few lines, with added tokens of all
sorts, a chat template in ChatML, and a configuration."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.checkpoint import write_json
from tests.support.smollm2 import gguf_path, write_small_files

TEXT = [
    "the quick brown fox jumps over the lazy dog. hello world, how are you today?",
    "日本語 の 文章 です。 if a == b: return 0\n    print('x')\n",
    "Зима. Le cœur déçu mais l'âme plutôt naïve. Ünïcödé ́combining 🐫 👩‍🚀",
    "you are a helpful assistant. user system tool hello hello hello",
] * 20
START, END, TOOL = "<|im_start|>", "<|im_end|>", "<|tool|>"
ANSWER = "<|answer|>"
"""For checkpoints that say given ids, see saying.py."""
CONTROL = [START, END, TOOL, ANSWER]
"""Special tokens of all of them."""
MARKUP = ["<think>", "</think>", "<tool_call>"]
"""Added tokens that are not special ones; the template speaks of the first two."""
ORDINARY = ["  ", "\n\n", "日本", "<td>", "a b", "é"]
"""Added tokens that are ways to spell text."""
BASIC = ["<unk>", "<s>", "</s>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content | trim }}</think>{% endif %}"
    "{% if message.name %}{{ message.name }}: {% endif %}{{ message['content'] | trim }}"
    "{% for call in message.tool_calls %}{{ call | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZE = 400


def byte_level(folder: Path) -> None:
    """As GPT-2 and Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet))
    _write(folder, tokenizer)


def ignoring_merges(folder: Path) -> None:
    """As Llama 3: whole words before merges, a first token by the post-processor, control tokens that eat blanks."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}{1,3}|\s+|[^\s\p{L}\p{N}]+"), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=BASIC
    )
    tokenizer.train_from_iterator([*TEXT, START * 9, END * 9], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    _write(folder, tokenizer, eats_blanks=True)


def byte_fallback(folder: Path) -> None:
    """As Llama 2's: a space in front of the text, bytes for what is in no token."""
    _write(folder, _sentence_like(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), 1))


def keeping_spaces(folder: Path) -> None:
    """As Gemma's: the same without that space."""
    _write(folder, _sentence_like(normalizers.Replace(" ", "▁"), 0))


def metaspace_unigram(folder: Path) -> None:
    """As T5's and XLM's, with a normaliser; what is in no token is unknown."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=[*BASIC, START, END], unk_token="<unk>")
    tokenizer.train_from_iterator(TEXT, trainer)
    _write(folder, tokenizer)


def word_piece(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=[*BASIC, START, END]))
    _write(folder, tokenizer)


def without_decoder(folder: Path) -> None:
    """Words with spaces between them."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(TEXT, trainers.WordLevelTrainer(special_tokens=BASIC))
    _write(folder, tokenizer)


def sentencepiece_bpe(folder: Path) -> None:
    """Nothing but a SentencePiece model."""
    _write_sentencepiece(folder, "bpe")


def sentencepiece_unigram(folder: Path) -> None:
    _write_sentencepiece(folder, "unigram")


def smollm2(folder: Path) -> None:
    """A real one: SmolLM2's."""
    write_small_files(folder, GGUFReader(gguf_path()))


KINDS: dict[str, Callable[[Path], None]] = {
    make.__name__: make
    for make in (
        *(byte_level, ignoring_merges, byte_fallback, keeping_spaces, metaspace_unigram, word_piece, without_decoder),
        *(sentencepiece_bpe, sentencepiece_unigram, smollm2),
    )
}


def vocabulary(folder: Path, kind: str, *, template: str = CHAT_TEMPLATE) -> Path:
    """`folder`, with a tokenizer of that kind in it."""
    folder.mkdir(parents=True, exist_ok=True)
    KINDS[kind](folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    if not (folder / "config.json").exists():
        write_json(folder / "config.json", {"model_type": "llama", "eos_token_id": 2})
    return folder


def _sentence_like(normalizer: Any, stripped: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizer
    letters = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        [line.replace(" ", "▁") for line in TEXT if line.isascii()],
        trainers.BpeTrainer(vocab_size=SIZE + 256, special_tokens=[*BASIC, *letters]),
    )
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = described["added_tokens"][: len(BASIC)]  # bytes are plain pieces, as in real files
    tokenizer = Tokenizer.from_str(json.dumps(described))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", stripped, 0)] if stripped else [])])
    return tokenizer


def _write(folder: Path, tokenizer: Tokenizer, *, eats_blanks: bool = False) -> None:
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in BASIC])
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, rstrip=eats_blanks) for token in CONTROL]
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in (*MARKUP, *ORDINARY)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    more = {"clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(folder / "tokenizer_config.json", names | more)


def _write_sentencepiece(folder: Path, kind: str) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line.replace("\n", " ") for line in TEXT]),
        model_writer=model,
        model_type=kind,
        vocab_size=SIZE,
        byte_fallback=True,
        hard_vocab_limit=False,
        character_coverage=0.98,
        control_symbols=CONTROL,
        user_defined_symbols=[*MARKUP, "日本", "<td>"],
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    names = {"bos_token": "<s>", "eos_token": {"content": "</s>", "__type": "AddedToken"}, "unk_token": "<unk>"}
    write_json(folder / "tokenizer_config.json", names | {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True})
