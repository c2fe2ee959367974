"""How models that fill in the middle are asked: the tokens around what stands before and after the gap."""

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GapTokens:
    """What stands in front of the text before the gap, in front of the text after it, and in front of the answer."""

    before: str
    after: str
    answer: str

    def around(self, before: str, after: str) -> tuple[str, str, str, str, str]:
        """Tokens and texts in their order, a token first and last."""
        return self.before, before, self.after, after, self.answer


_KNOWN = (
    GapTokens("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    GapTokens("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    GapTokens("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    GapTokens("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM-4
    GapTokens("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
)


def gap_tokens(tokens: Container[str]) -> GapTokens | None:
    """Those that a tokenizer with these tokens has; None where it has none."""
    return next((known for known in _KNOWN if all(one in tokens for one in known.around("", "")[::2])), None)
