"""What is left of a text that is longer than the context, against stock Ollama's rule taken step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.serving.intake.window import Window


def shifted(held: list[int], context: int, keep: int) -> list[int]:
    """Stock's: with so many tokens in the cache that one more does not fit, enough go that half of what may is free."""
    if len(held) + 1 <= context:
        return held
    discard = max((context - keep) // 2, 1) - (context - len(held))
    return [*held[:keep], *held[keep + discard :]]


@given(st.integers(2, 40), st.integers(0, 50), st.integers(1, 40), st.integers(0, 200))
def test_window_when_tokens_come_one_by_one_then_what_stock_has(
    context: int, keep: int, prompt: int, more: int
) -> None:
    prompt, keep = min(prompt, context), min(keep, context - 1)
    window, held = Window(context, keep), list(range(prompt))
    for token in range(prompt, prompt + more):
        before = len(held)
        held = [*shifted(held, context, keep), token]
        assert window.of(range(token + 1)) == held
        assert window.moves(token + 1) == (len(held) <= before)
        assert len(held) <= context == window.context_tokens


@pytest.mark.parametrize("keep", [None, 4])
def test_window_when_the_context_is_not_full_then_nothing_goes(keep: int | None) -> None:
    assert Window(10, keep).of(range(10)) == list(range(10))
    assert not any(Window(10, keep).moves(total) for total in range(11))
