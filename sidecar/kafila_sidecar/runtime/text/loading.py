"""A checkpoint's tokenizer files to one of transformers' tokenizers. Runs no code of the checkpoint's; needs no MLX.

transformers reads a folder by itself, and more strictly than the Hub's files are written: so it gets a folder with the
tokenizer's files as our own reader reads them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.foreign import refuse_foreign_code
from kafila_sidecar.small_files import (
    CONFIG,
    GENERATION_CONFIG,
    SPECIAL_TOKENS_MAP,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TOKENIZER_FILES,
    decode_text,
    parse_json,
    read_bytes,
    read_optional_json,
)

# mlx-lm imports the parser module that a checkpoint names; these are its own.
TOOL_PARSERS = frozenset(
    (
        *("function_gemma", "gemma4", "glm47", "json_tools", "kimi_k2", "kimi_k3", "laguna", "longcat", "minicpm5"),
        *("minimax_m2", "mistral", "muse_spark", "pythonic", "qwen3_coder"),
    )
)
AUTO_MAP = "auto_map"
"""Names code of the repository's own for transformers, and makes it choose classes otherwise."""
_BINARY = ".model"
_REWRITING = frozenset({"NewlineTokenizer"})  # mlx-lm's, which changes texts outside the tokenizer file


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a checkpoint says of its text. special_tokens: the tokens that templates know by name, such as bos_token."""

    backend: Tokenizer
    special_tokens: Mapping[str, str]
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    special_tokens_map: Mapping[str, Any]


def load_files(model: str, folder: Path) -> TokenizerFiles:
    """Raises: Refused when files are absent, unreadable, or ask for code."""
    tokenizer_config = read_optional_json(model, folder, TOKENIZER_CONFIG)
    _check(tokenizer_config, has_file=(folder / TOKENIZER).is_file())
    with TemporaryDirectory(prefix="kafila-tokenizer-") as place:
        _copy_readable(model, folder, Path(place))
        loaded = _load(place)
    backend: Tokenizer | None = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise Refused("the checkpoint's tokenizer is written in code, not in a tokenizer file: choose another model")
    backend.no_truncation()
    backend.no_padding()
    return TokenizerFiles(
        backend=backend,
        special_tokens={name: str(token) for name, token in loaded.special_tokens_map.items() if not _is_list(token)},
        config=read_optional_json(model, folder, CONFIG),
        generation_config=read_optional_json(model, folder, GENERATION_CONFIG),
        tokenizer_config=tokenizer_config,
        special_tokens_map=read_optional_json(model, folder, SPECIAL_TOKENS_MAP),
    )


def _copy_readable(model: str, folder: Path, place: Path) -> None:
    """Links files that are UTF-8 already and name no code, and writes the others so."""
    for name in sorted(TOKENIZER_FILES | {CONFIG}):
        path = folder / name
        if not path.is_file():
            continue
        data = read_bytes(model, path)
        text = "" if path.suffix == _BINARY else decode_text(model, name, data)
        content = parse_json(model, name, text) if path.suffix == ".json" else {}
        if content.pop(AUTO_MAP, None) is not None:
            text = json.dumps(content, ensure_ascii=False)
        if path.suffix == _BINARY or text.encode() == data:
            os.symlink(path.absolute(), place / name)
        else:
            (place / name).write_text(text, encoding="utf-8")


def _load(folder: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the libraries raise all kinds for files that make no sense
        raise Refused(f"the checkpoint's tokenizer can't be loaded: {error}") from error


def _check(config: Mapping[str, Any], *, has_file: bool) -> None:
    """has_file: whether there is a tokenizer.json, which says all without any code."""
    refuse_foreign_code(config, TOKENIZER_CONFIG)
    parser, template, kind = (config.get(key) for key in ("tool_parser_type", "chat_template_type", "tokenizer_class"))
    if config.get(AUTO_MAP) and not has_file and not _is_known(kind):
        raise Refused(
            f"the checkpoint's tokenizer {str(kind)[:80]} is code of its own (auto_map), which is never run: choose a "
            "copy of the model that has a tokenizer.json"
        )
    if parser is not None and str(parser) not in TOOL_PARSERS:
        raise Refused(f"tokenizer_config.json names the unknown tool parser {parser!r}: choose another model")
    if template is not None:
        raise Refused(f"tokenizer_config.json names the chat template type {template!r}: choose a model with its own")
    if str(kind) in _REWRITING:
        raise Refused(f"tokenizer_config.json names the class {kind}, which is not offered: choose another model")


def _is_known(name: Any) -> bool:
    """Whether transformers itself has a tokenizer class of this name."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    short = str(name).removesuffix("Fast")
    return any(known is not None and known.removesuffix("Fast") == short for known in TOKENIZER_MAPPING_NAMES.values())


def _is_list(token: Any) -> bool:
    return isinstance(token, list | tuple)
