"""The ids that end an answer: all that the checkpoint's configuration, generation configuration and tokenizer name."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

TURN_ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<end_of_turn>"})
"""Tokens that end a turn wherever a tokenizer has them as special ones, also where its files name another end only."""

_ID_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_TOKEN_KEYS = ("eos_token", "eot_token", "eom_token")
_INNER_CONFIGS = ("text_config", "llm_config", "language_config")


def end_ids(
    configs: tuple[Mapping[str, Any], ...],
    tokenizer_files: tuple[Mapping[str, Any], ...],
    special: Mapping[str, int],
    id_of: Callable[[str], int | None],
) -> frozenset[int]:
    """What `configs` say by id and `tokenizer_files` by token, in numbers, texts, lists or objects, and the turns' ends
    among the `special` tokens. What is no id or token at all is passed over."""
    inner = [config[key] for config in configs for key in _INNER_CONFIGS if isinstance(config.get(key), Mapping)]
    named = [config.get(key) for config in (*configs, *inner) for key in _ID_KEYS]
    named += [file.get(key) for file in tokenizer_files for key in _TOKEN_KEYS]
    found = {number for value in named for number in _ids(value, id_of)}
    return frozenset(found | {special[token] for token in TURN_ENDS & special.keys()})


def _ids(value: Any, id_of: Callable[[str], int | None]) -> Iterator[int]:
    match value:
        case bool() | None:
            return
        case int() if value >= 0:
            yield value
        case float() if value.is_integer() and value >= 0:
            yield int(value)
        case str():
            number = id_of(value)
            if number is not None:
                yield number
            elif value.isascii() and value.isdigit():
                yield int(value[:9])
        case {"content": str(token)}:
            yield from _ids(token, id_of)
        case list():
            for one in value:
                if not isinstance(one, list):
                    yield from _ids(one, id_of)
