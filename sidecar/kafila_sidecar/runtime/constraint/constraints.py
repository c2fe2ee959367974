"""Makes the constraints of one checkpoint's answers: its vocabulary as llguidance has it, made when first wanted."""

import asyncio

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from kafila_sidecar.runtime.constraint.constraint import Constraint
from kafila_sidecar.runtime.constraint.grammar import after_blanks, grammar_of
from kafila_sidecar.runtime.text.vocabulary import Vocabulary

MOST_LEXER_STATES = 50_000  # 1 to 2 kB each
MOST_GRAMMAR_SYMBOLS = 200_000
BUILD_FUEL = 1_000_000  # 20 ms of building expressions
STEP_FUEL = 200_000  # 15 ms of them for a token
STEP_ITEMS = 50_000  # 3 ms of parsing for a token


class Constraints:
    """Makes them one after another, each on a thread: the largest that is taken needs seconds and 30 MB."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None
        self._turn = asyncio.Lock()

    async def make(self, wanted: str, *, strict: bool = False, after_thought: bool = False) -> Constraint:
        """For an answer in the format that is `wanted`; see `grammar_of`.

        Raises: InvalidInput for a schema that can't be read, is too complex, or that no answer fits.
        """
        grammar = grammar_of(wanted, strict=strict)
        async with self._turn:
            made = await asyncio.to_thread(self._made, grammar)  # which shows whether any answer fits
            if not after_thought:
                return made
            return await asyncio.to_thread(self._made, after_blanks(grammar))

    def _made(self, grammar: str) -> Constraint:
        if self._tokenizer is None:
            self._tokenizer = _tokenizer(self._vocabulary)
        return Constraint(LLMatcher(self._tokenizer, grammar, log_level=0, limits=_limits()))


class _Tokens:
    """A vocabulary by the names that llguidance reads. One id more than there are ends an answer, where the checkpoint
    names none."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        size = vocabulary.size
        self.eos_token_id = size
        self.tokens = [*(vocabulary.bytes_of(number) for number in range(size)), b"\xff"]
        self.special_token_ids = sorted({*vocabulary.controls, *vocabulary.eos_ids, size})
        self.made: LLTokenizer | None = None

    def __call__(self, text: bytes) -> list[int]:
        """How a text is spelt of which the grammar leaves no choice: in the longest tokens."""
        return self.made.greedy_tokenize(text.decode()) if self.made is not None else []


def _tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    tokens = _Tokens(vocabulary)
    ends = [vocabulary.size, *sorted(vocabulary.eos_ids)]
    tokens.made = LLTokenizer(TokenizerWrapper(tokens), eos_token=ends, slices=LLTokenizer.json_slices())
    return tokens.made


def _limits() -> LLParserLimits:
    return LLParserLimits(
        initial_lexer_fuel=BUILD_FUEL,
        step_lexer_fuel=STEP_FUEL,
        step_max_items=STEP_ITEMS,
        max_lexer_states=MOST_LEXER_STATES,
        max_grammar_size=MOST_GRAMMAR_SYMBOLS,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )
