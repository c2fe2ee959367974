"""The checkpoint's tokenizer and chat template: prompts to token ids, token ids to streamed text.

Computes without MLX and may run on any one thread at a time; loading and long conversations take a while.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.models.family import embedded_ids
from kafila_sidecar.models.gaps import gap_tokens
from kafila_sidecar.runtime.answer.calls import marks_of
from kafila_sidecar.runtime.answer.formats import AnswerFormat, answer_format
from kafila_sidecar.runtime.text.bounds import TokenLength, check_vocabulary
from kafila_sidecar.runtime.text.control import ControlledEncoder, control_tokens
from kafila_sidecar.runtime.text.conversation import (
    TOO_LONG,
    Message,
    fit_messages,
    fit_tokens,
    for_template,
    newest,
    with_names,
)
from kafila_sidecar.runtime.text.decoding import Decoding, TextStream
from kafila_sidecar.runtime.text.ends import end_ids
from kafila_sidecar.runtime.text.loading import TokenizerFiles, load_files
from kafila_sidecar.runtime.text.options import unusable
from kafila_sidecar.runtime.text.prompt import ChatPrompt, PlainPrompt, parse_prompt
from kafila_sidecar.runtime.text.provenance import OwnText, joined, own
from kafila_sidecar.runtime.text.templates import Templates, find_templates

log = logging.getLogger(__name__)

Think = bool | str | None
Doing = Callable[[str], None]
"""Hears what is about to run, since that may not end."""

TEMPLATE, TOKENIZER = "chat template", "tokenizer"

THINKING_TOKENS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>", "<channel|>"),
)
"""Tokens around a thought, as mlx-lm knows them; a model that has a pair of them thinks unless it is told not to."""


class Tokenizer:
    """Renders, encodes and decodes for one checkpoint.

    answers: how its answers are read. eos_ids: the ids that end one. control_ids: those that are no text. size: all ids
    are below it, and `gaps` are those below it that are no token.
    generation_config: the checkpoint's, {} where it has none.
    """

    def __init__(
        self, files: TokenizerFiles, templates: Mapping[str, str], *, doing: Doing = lambda what: None
    ) -> None:
        """Raises: Refused for a decoder that is not known, or a template that can't be compiled."""
        self.backend = files.backend
        self.generation_config = files.generation_config
        vocab = files.backend.get_vocab(with_added_tokens=True)
        check_vocabulary(vocab.items())
        known = frozenset(vocab.values())
        self.size = max(known, default=-1) + 1
        self.gaps = tuple(sorted(frozenset(range(self.size)) - known))
        self._length = TokenLength.of(vocab, normalizes=files.backend.normalizer is not None)
        self._embedded = embedded_ids(files.config)
        self._begin = _first_token(files)
        self._gap = gap_tokens(vocab)
        self._decoding = Decoding.of(files.backend)
        controls = control_tokens(files.backend, "".join(templates.values()))
        self.eos_ids = (
            end_ids(
                (files.config, files.generation_config),
                (files.tokenizer_config, files.special_tokens_map, files.special_tokens),
                controls,
                files.backend.token_to_id,
            )
            & known
        )
        self.control_ids = frozenset(controls.values())
        self._encoder = ControlledEncoder(files.backend, controls)
        self._settings = {"enable_thinking": any(a in vocab and b in vocab for a, b in THINKING_TOKENS)}
        self.answers = _answers(files, "".join(templates.values()))
        self._doing = doing
        doing(TEMPLATE)
        self.templates = Templates.tried(templates, files.special_tokens) if templates else None

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer in a checkpoint's folder. Runs no code of the checkpoint's; templates run in a sandbox.

        Raises: Refused when the files are absent, unreadable, or ask for more than that.
        """
        files = load_files("the checkpoint", folder)
        if passed_over := unusable(files.generation_config):
            log.info("generation_config_passed_over keys=%s", ",".join(passed_over))
        return cls(files, find_templates("the checkpoint", folder))

    def check(self) -> None:
        """Raises: Refused when conversations can't be rendered for this model, as a trial has shown."""
        if self.templates is None:
            return
        self._doing(TEMPLATE)
        if self.templates.fault:
            raise Refused(f"{self.templates.fault}: choose another model")
        for text in self.templates.trials(self._settings):
            self._doing(TOKENIZER)
            plain = "".join((text,))
            if self._encoder.encode_apart(text) != self.backend.encode(plain, add_special_tokens=False).ids:
                raise Refused(
                    "the model's chat template makes control tokens in a way that can't be told from what people "
                    "write: choose another model"
                )

    def encode(self, text: str) -> list[int]:
        """A raw prompt's ids, begun with the model's own first token unless the text has it already. Control tokens in
        it are control tokens, as in stock Ollama.

        Raises: InvalidInput for a token that the model has no embedding for.
        """
        return self._checked(self._encoded(text))

    def render(self, messages: Sequence[Message], tools: Sequence[Any] = (), think: Think = None) -> list[int]:
        """A conversation's ids, up to where the answer begins. Control tokens in it are the template's; those that
        people, tools or the model wrote are text.

        Raises: InvalidInput when the model's template refuses the conversation.
        """
        return self._checked([*self._put_first, *self._encoder.encode(self._rendered(messages, tools, think))])

    def ids(
        self,
        raw: str,
        *,
        limit: int,
        keep: int = 4,
        truncate: bool = True,
        cut_to: int | None = None,
        plain: bool = False,
        suffix: str = "",
        begun: bool = False,
    ) -> list[int]:
        """What a prompt comes to, in its envelope or plain, in at most `limit` tokens; see `fit`.

        plain: it is text even if it looks like an envelope. suffix: what comes after the answer; the prompt, or the
        last message of a conversation, then is what comes before it. begun: the last message of a conversation is how
        the answer begins.

        Raises: InvalidInput when it can't be read, is too long and `truncate` is false, or the template refuses it.
        """
        prompt = PlainPrompt(raw) if plain else parse_prompt(raw)
        room: dict[str, Any] = {"limit": limit, "keep": keep, "truncate": truncate, "cut_to": cut_to}
        if suffix:
            return self.fit_gap(prompt.last_text, suffix, **room)
        if isinstance(prompt, ChatPrompt):
            return self.fit(prompt.messages, prompt.tools, prompt.think, begun=begun, **room)
        return self.fit_text(prompt.text, **room)

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
        begun: bool = False,
    ) -> list[int]:
        """As `render`, in at most `limit` tokens: the oldest messages go, as in stock Ollama. Those that can't fit are
        not even rendered.

        keep: tokens at the beginning that stay when the last message alone is too long. cut_to: what a longer prompt is
        cut to, `limit` unless given.

        Raises: InvalidInput when it is too long and `truncate` is false, or the template refuses it.
        """

        def rendered(part: Sequence[Message]) -> list[int]:
            text = self._rendered(part, tools, think, begun=begun)
            self._doing(TOKENIZER)
            encode = self._encoder.encode
            ids = self._length.encode(text, limit, keep, first=encode, further=encode)
            return self._checked([*self._put_first, *ids])

        def rendered_if_taken(part: Sequence[Message]) -> list[int] | None:
            try:
                return whole if len(part) == len(messages) else rendered(part)
            except InvalidInput:
                return None

        messages = with_names(messages)
        fitting = newest(messages, characters=limit * self._length.characters, most=limit)
        said = sum(len(str(message.get("content", ""))) for message in messages)
        if not truncate and (len(fitting) < len(messages) or self._length.exceeds(said, limit)):
            raise InvalidInput(TOO_LONG)
        whole = rendered(messages) if len(fitting) == len(messages) else None
        if whole is not None and len(whole) <= limit:
            return whole
        if not truncate:
            raise InvalidInput(TOO_LONG)
        room = cut_to or limit
        return fit_tokens(fit_messages(fitting, rendered_if_taken, room), limit=room, keep=keep)

    def fit_text(
        self, text: str, *, limit: int, keep: int = 4, truncate: bool = True, cut_to: int | None = None
    ) -> list[int]:
        """As `encode`, in at most `limit` tokens; a longer prompt is cut as in `fit`.

        Raises: InvalidInput when it is too long and `truncate` is false.
        """
        if self._length.exceeds(len(text), limit) and not truncate:
            raise InvalidInput(TOO_LONG)
        self._doing(TOKENIZER)
        ids = self._checked(self._length.encode(text, limit, keep, first=self._encoded, further=self._encoded_further))
        if len(ids) <= limit:
            return ids
        if not truncate:
            raise InvalidInput(TOO_LONG)
        return fit_tokens(ids, limit=cut_to or limit, keep=keep)

    def fit_gap(
        self, before: str, after: str, *, limit: int, keep: int = 4, truncate: bool = True, cut_to: int | None = None
    ) -> list[int]:
        """Asks for what stands between two texts, in at most `limit` tokens; a longer prompt is cut as in `fit_text`.
        Control tokens in the texts are text.

        Raises: InvalidInput for a model that does not fill in, or a prompt that is too long and may not be cut.
        """
        if self._gap is None:
            raise InvalidInput("this session's model does not fill in the middle: leave `suffix` out")
        if not truncate and self._length.exceeds(len(before) + len(after), limit):
            raise InvalidInput(TOO_LONG)
        parts = self._gap.around(before, after)
        marked = [own(part) if at % 2 == 0 else OwnText(part) for at, part in enumerate(parts)]
        self._doing(TOKENIZER)
        encode = self._encoder.encode
        first = () if self._begin is None else (self._begin[1],)
        made = self._length.encode(OwnText("").join(marked), limit, keep, first=encode, further=encode)
        ids = self._checked([*first, *made])
        if len(ids) > limit and not truncate:
            raise InvalidInput(TOO_LONG)
        return ids if len(ids) <= limit else fit_tokens(ids, limit=cut_to or limit, keep=keep)

    @property
    def first_id(self) -> int | None:
        """The token that the tokenizer puts in front of every text, None where it puts none."""
        return None if self._begin is None else self._begin[1]

    def stream(self, *, after_raw_prompt: bool = False) -> TextStream:
        """A new answer's text. After a raw prompt a leading space belongs to the text; after a template it is none."""
        return self._decoding.stream(at_start=not after_raw_prompt)

    @property
    def _put_first(self) -> tuple[int, ...]:
        """What a conversation begins with that no template renders."""
        return (self._begin[1],) if self.templates is None and self._begin is not None else ()

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[Any], think: Think, *, begun: bool = False
    ) -> OwnText:
        self._doing(TEMPLATE)
        turns = [for_template(message) for message in messages]
        if self.templates is None:
            return OwnText("\n".join(turn["content"] for turn in turns))
        settings: dict[str, Any] = self._settings if think is None else {"enable_thinking": bool(think)}
        settings = settings | {"thinking": settings["enable_thinking"]}  # as some templates call it
        if isinstance(think, str):
            settings = settings | {"reasoning_effort": think}
        rendered = self.templates.render(turns, tools, settings, begun=begun)
        return self._without_thought(rendered) if think is False and not begun else rendered

    def _without_thought(self, rendered: OwnText) -> OwnText:
        """The rendering with an empty thought at its end, where a template opens one whatever it is told."""
        thought = self.answers.thought
        if thought is None or not rendered.rstrip().endswith(thought[0]):
            return rendered
        return joined((rendered, own(f"\n{thought[1]}\n\n")))

    def _encoded(self, text: str) -> list[int]:
        begun = self._begin is not None and text.startswith(self._begin[0])
        return list(self.backend.encode(text, add_special_tokens=not begun).ids)

    def _encoded_further(self, text: str) -> list[int]:
        return list(self.backend.encode(text, add_special_tokens=False).ids)

    def _checked(self, ids: list[int]) -> list[int]:
        if self._embedded and ids and max(ids) >= self._embedded:
            token = self.backend.id_to_token(max(ids))
            raise InvalidInput(f"the model was made without the token {token!r}, which its tokenizer has: leave it out")
        return ids


def _answers(files: TokenizerFiles, templates: str) -> AnswerFormat:
    added = {token.content: number for number, token in files.backend.get_added_tokens_decoder().items()}
    named = files.tokenizer_config.get("tool_parser_type")
    parser = str(named) if named is not None else None
    return answer_format(templates, named_parser=parser, marks_of=marks_of, control_of=added.get)


def _first_token(files: TokenizerFiles) -> tuple[str, int] | None:
    """The token that the tokenizer puts in front of a text, if it does."""
    first = files.special_tokens.get("bos_token", "")
    number, put = files.backend.token_to_id(first), files.backend.encode("").ids
    return (first, number) if number is not None and put[:1] == [number] else None
