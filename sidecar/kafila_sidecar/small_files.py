"""The small files of a checkpoint: which are taken, and the one way to read them.

Text is UTF-8, or what its byte order mark says (UTF-8, UTF-16, UTF-32). In JSON a key that comes twice with different
values is refused, since readers differ in which they take; NaN and Infinity are read, as the Hub's own tools do (some
state-space models have them), and are for whoever wants a finite number to refuse.
"""

import codecs
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import NotFound, Refused

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
QUANT_CONFIG = "hf_quant_config.json"
"""Where NVIDIA's ModelOpt says how weights are packed."""
INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
CHAT_TEMPLATE = "chat_template.jinja"
TEMPLATE_HOLDERS = ("chat_template.json", "processor_config.json", "preprocessor_config.json")
"""Further files whose `chat_template` is one, the first that has it counts."""
MORE_TEMPLATES = "additional_chat_templates"
"""A folder of named templates."""
TOKENIZER_FILES = frozenset(
    {
        *{TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, "added_tokens.json"},
        *{"vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "tiktoken.model", "spiece.model"},
    }
)
SMALL_FILES = TOKENIZER_FILES | {
    *{CONFIG, GENERATION_CONFIG, QUANT_CONFIG, INDEX, CHAT_TEMPLATE},
    *TEMPLATE_HOLDERS,
}
"""All that is ever taken from the top of a repository beside weights; code is not."""
MOST_SMALL_BYTES = 64 << 20
MOST_TEMPLATES = 16
DEEPEST_JSON = 64

_TEMPLATE_PLACE = re.compile(rf"{MORE_TEMPLATES}/[A-Za-z0-9][\w.-]{{0,100}}\.jinja", re.ASCII)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def small_files_of(listed: Iterable[str]) -> list[str]:
    """The names among those that a repository lists which are worth having, in order."""
    names = sorted(set(listed))
    templates = [name for name in names if _TEMPLATE_PLACE.fullmatch(name)]
    return [name for name in names if name in SMALL_FILES] + templates[:MOST_TEMPLATES]


def read_bytes(model: str, path: Path) -> bytes:
    """A small file's bytes. Raises NotFound where there is none, Refused for a large or unreadable one."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MOST_SMALL_BYTES:
            raise Refused(f"{model} has a {path.name} of {size_bytes} bytes, over {MOST_SMALL_BYTES}")
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{model} has no {path.name}: it is no checkpoint that can be run") from None
    except OSError as error:
        raise Refused(f"{model} has a {path.name} that can't be read: {error.strerror}") from None


def decode_text(model: str, name: str, data: bytes) -> str:
    """The text of a small file, without its byte order mark. Raises Refused for bytes that are no text."""
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeError:
        raise Refused(f"{model} has a {name} that is no text in UTF-8: save it in that encoding") from None


def read_text(model: str, path: Path) -> str:
    return decode_text(model, path.name, read_bytes(model, path))


def parse_json(model: str, name: str, text: str) -> dict[str, Any]:
    """A JSON object. Raises Refused for anything else, and for one that readers would read differently."""
    content: Any = None
    try:
        content = json.loads(text, object_pairs_hook=_object)
        if _HALF_CHARACTER.search(text):
            json.dumps(content, ensure_ascii=False).encode()
    except _Twice as twice:
        raise Refused(f"{model} has a {name} that says {twice.key!r} twice, and differently") from None
    except UnicodeEncodeError:
        raise Refused(f"{model} has a {name} with half a character in it") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refused(f"{model} has a {name} that is no JSON object")
    if _is_deeper(content, DEEPEST_JSON):
        raise Refused(f"{model} has a {name} that is nested more than {DEEPEST_JSON} deep")
    return content


def read_json(model: str, path: Path) -> dict[str, Any]:
    """The JSON object in a small file. Raises as `read_bytes` and `parse_json` do."""
    return parse_json(model, path.name, read_text(model, path))


def read_optional_json(model: str, folder: Path, name: str) -> dict[str, Any]:
    """As `read_json`; {} where the checkpoint has no such file."""
    return read_json(model, folder / name) if (folder / name).is_file() else {}


class _Twice(Exception):
    def __init__(self, key: str) -> None:
        self.key = key[:80]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        for key, value in pairs:
            if made[key] != value:
                raise _Twice(key)
    return made


def _is_deeper(content: Any, most: int) -> bool:
    level: list[Any] = [content]
    for _ in range(most):
        values = (value for one in level for value in (one.values() if isinstance(one, dict) else one))
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return False
    return True
