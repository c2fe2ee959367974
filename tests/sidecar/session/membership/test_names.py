"""Member names."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.session.membership.names import fit, is_legal


@pytest.mark.parametrize(
    ("wish", "taken", "name"),
    [
        ("mac", [], "mac"),
        ("mac", ["mac"], "mac-2"),
        ("MAC", ["mac", "mac-2"], "MAC-3"),
        ("Anna's MacBook Pro", [], "Anna-s-MacBook-Pro"),
        ("  ", [], "member"),
        ("all", [], "all-2"),
        ("büro.lan", [], "büro.lan"),
        ("x" * 100, ["x" * 36], "x" * 36 + "-2"),
    ],
)
def test_fit_when_wished_then_close_and_free(wish: str, taken: list[str], name: str) -> None:
    assert fit(wish, taken) == name


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.lists(st.text(max_size=5), max_size=5))
def test_fit_when_anything_is_wished_then_legal_and_unique(wish: str, others: list[str]) -> None:
    names: list[str] = []
    for each in (*others, wish, wish):
        name = fit(each, names)
        assert is_legal(name)
        assert name.casefold() not in {taken.casefold() for taken in names}
        names.append(name)


@pytest.mark.parametrize("name", ["", "all", "ALL", "a b", "a\n", "x" * 41, "a/b", "\u202eabc", "ﬁ"])
def test_is_legal_when_name_could_mislead_then_false(name: str) -> None:
    assert not is_legal(name)
