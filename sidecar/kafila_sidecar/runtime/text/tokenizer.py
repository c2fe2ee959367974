"""The checkpoint's tokenizer and chat template: prompts to token ids, token ids to streamed text.

`Tokenizer.load` runs on the MLX thread, since mlx-lm imports MLX with its tokenizer. The rest computes without MLX and
may run on any one thread at a time; long conversations take a while to render.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.models.foreign import refuse_foreign_code
from kafila_sidecar.runtime.text.conversation import TOO_LONG, Message, fit_messages, fit_tokens, for_template

Think = bool | str | None

# mlx-lm imports the parser module that a checkpoint names; these are its own.
TOOL_PARSERS = frozenset(
    (
        *("function_gemma", "gemma4", "glm47", "json_tools", "kimi_k2", "kimi_k3", "laguna", "longcat", "minicpm5"),
        *("minimax_m2", "mistral", "muse_spark", "pythonic", "qwen3_coder"),
    )
)


class TextStream:
    """Token ids of one answer to text, whole characters at a time. Wraps one of mlx-lm's streaming detokenizers."""

    def __init__(self, detokenizer: Any) -> None:
        self._detokenizer = detokenizer

    def add(self, token: int) -> str:
        """The text that is certain now and wasn't before; it may be empty."""
        self._detokenizer.add_token(token)
        return str(self._detokenizer.last_segment)

    def finish(self) -> str:
        """What was held back for a character that never became whole."""
        self._detokenizer.finalize()
        return str(self._detokenizer.last_segment)


class Tokenizer:
    """Renders, encodes and decodes for one checkpoint, around mlx-lm's TokenizerWrapper.

    eos_ids: the ids that end an answer. generation_config: the checkpoint's, {} where it has none.
    """

    def __init__(self, wrapper: Any, generation_config: Mapping[str, Any]) -> None:
        self.wrapper = wrapper
        self.generation_config = generation_config
        self.eos_ids = frozenset(int(token) for token in wrapper.eos_token_ids)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer in a checkpoint's folder. Runs no code of the checkpoint's; templates run in a sandbox.

        Raises: Refused when the files are absent, unreadable, or ask for more than that.
        """
        from mlx_lm.tokenizer_utils import load

        _check(_read_json(folder / "tokenizer_config.json"))
        config = _read_json(folder / "config.json")
        generation_config = _read_json(folder / "generation_config.json")
        ends = generation_config.get("eos_token_id", config.get("eos_token_id"))
        try:
            wrapper = load(folder, {"trust_remote_code": False, "local_files_only": True}, [] if ends is None else ends)
        except (OSError, ValueError, ImportError, AttributeError, KeyError) as error:
            raise Refused(f"the checkpoint's tokenizer can't be loaded: {error}") from error
        return cls(wrapper, generation_config)

    def encode(self, text: str) -> list[int]:
        """A raw prompt's ids, begun with the model's own first token unless the text has it already."""
        bos = self.wrapper.bos_token
        return list(self.wrapper.encode(text, add_special_tokens=bos is None or not text.startswith(bos)))

    def render(self, messages: Sequence[Message], tools: Sequence[Any] = (), think: Think = None) -> list[int]:
        """A conversation's ids, up to where the answer begins.

        Raises: InvalidInput when the model's template refuses the conversation.
        """
        turns = [for_template(message) for message in messages]
        if not self.wrapper.has_chat_template:
            return self.encode("\n".join(turn["content"] for turn in turns))
        extra: dict[str, Any] = {} if think is None else {"enable_thinking": bool(think)}
        if isinstance(think, str):
            extra["reasoning_effort"] = think
        try:
            ids = self.wrapper.apply_chat_template(
                turns, tools=list(tools) or None, add_generation_prompt=True, **extra
            )
        except TemplateError as error:
            raise InvalidInput(f"the model's chat template doesn't take this conversation: {error}") from error
        return list(ids)

    def fit(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] = (),
        think: Think = None,
        *,
        limit: int,
        keep: int = 4,
        truncate: bool = True,
        cut_to: int | None = None,
    ) -> list[int]:
        """As `render`, in at most `limit` tokens: the oldest messages go, as in stock Ollama.

        keep: tokens at the beginning that stay when the last message alone is too long. cut_to: what a longer prompt is
        cut to, `limit` unless given.

        Raises: InvalidInput when it is too long and `truncate` is false, or the template refuses it.
        """
        whole = self.render(messages, tools, think)
        if len(whole) <= limit or not truncate:
            return self.fit_raw(whole, limit=limit, keep=keep, truncate=truncate)

        def rendered(part: Sequence[Message]) -> list[int] | None:
            if len(part) == len(messages):
                return whole
            try:
                return self.render(part, tools, think)
            except InvalidInput:
                return None

        room = cut_to or limit
        return fit_tokens(fit_messages(messages, rendered, room), limit=room, keep=keep)

    def fit_raw(
        self, ids: Sequence[int], *, limit: int, keep: int = 4, truncate: bool = True, cut_to: int | None = None
    ) -> list[int]:
        """Ids of a prompt in at most `limit` tokens; a longer one is cut as in `fit`.

        Raises: InvalidInput when it is too long and `truncate` is false.
        """
        if len(ids) <= limit:
            return list(ids)
        if not truncate:
            raise InvalidInput(TOO_LONG)
        return fit_tokens(ids, limit=cut_to or limit, keep=keep)

    def stream(self, *, after_raw_prompt: bool = False) -> TextStream:
        """A new answer's text. After a raw prompt a leading space belongs to the text; after a template it is none."""
        detokenizer: Any = self.wrapper.detokenizer
        if after_raw_prompt:
            detokenizer.trim_space = False
            detokenizer._maybe_trim_space = lambda text: text
        return TextStream(detokenizer)


def _check(config: Mapping[str, Any]) -> None:
    refuse_foreign_code(config, "tokenizer_config.json")
    parser, template = config.get("tool_parser_type"), config.get("chat_template_type")
    if parser is not None and parser not in TOOL_PARSERS:
        raise Refused(f"tokenizer_config.json names the unknown tool parser {parser!r}: choose another model")
    if template is not None:
        raise Refused(f"tokenizer_config.json names the chat template type {template!r}: choose a model with its own")


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} where there is none.

    Raises: Refused when it is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Refused(f"the checkpoint's {path.name} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise Refused(f"the checkpoint's {path.name} is no JSON object")
    return content
