"""What a sequence still has of prompt and answer once they are longer than the context: its beginning and its newest
tokens, as in stock Ollama. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """keep: tokens at the beginning that stay; None: the text never becomes longer than the context.

    When one token more comes than the context has room for, the oldest half of what may go does. What is left is
    another sequence, which every stage computes anew from where the two part.
    """

    context_tokens: int
    keep: int | None = None

    def gone(self, total: int) -> int:
        """How many tokens have gone, of a text with so many."""
        over = total - self.context_tokens
        if self.keep is None or over <= 0:
            return 0
        half = max(1, (self.context_tokens - self.keep) // 2)
        return half * -(-over // half)

    def moves(self, total: int) -> bool:
        """Whether some go with the last one of so many."""
        return self.gone(total) != self.gone(total - 1)

    def of(self, tokens: Sequence[int]) -> list[int]:
        """Those that are left."""
        keep = self.keep or 0
        return [*tokens[:keep], *tokens[keep + self.gone(len(tokens)) :]]
