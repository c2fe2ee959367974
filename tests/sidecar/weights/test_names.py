"""Short names, and what is said about names that nobody has."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafila_sidecar.errors import InvalidInput, NotFound
from kafila_sidecar.weights.providers.hub import REPO, Hub
from kafila_sidecar.weights.providers.names import DEFAULTS, TABLE, known_as
from kafila_sidecar.weights.providers.resolve import resolve
from tests.support.model_host import ModelHost

Make = Callable[..., Path]


def test_table_when_read_then_names_are_unique_and_each_repository_id_is_one() -> None:
    assert len({model.name for model in TABLE}) == len(TABLE)
    assert len({model.repo for model in TABLE}) == len(TABLE)
    assert all(REPO.fullmatch(model.repo) for model in TABLE)
    assert {model.name.partition(":")[0] for model in TABLE} == set(DEFAULTS)


@pytest.mark.parametrize("model", TABLE, ids=lambda model: model.name)
def test_needs_when_machines_are_more_then_each_needs_less_but_never_nothing(model: object) -> None:
    named = known_as(getattr(model, "name", ""))
    assert named is not None
    needs = [named.needed_bytes(machines) for machines in (1, 2, 3, 4)]
    assert needs == sorted(needs, reverse=True)
    assert needs[0] > named.weight_bytes > 0
    assert needs[-1] > named.weight_bytes // 4


@pytest.mark.parametrize("family", DEFAULTS)
def test_name_when_it_has_no_size_then_the_families_usual_one_is_meant(family: str) -> None:
    usual = known_as(f"{family}:{DEFAULTS[family]}")
    assert usual is not None
    assert known_as(family) == known_as(f"{family}:latest") == known_as(f" {family.upper()} ") == usual


@pytest.mark.parametrize("name", ["", ":", "qwen3:7b", "org/name", "/folder", "qwen3:8b:8b"])
def test_name_when_the_table_lacks_it_then_none(name: str) -> None:
    assert known_as(name) is None


async def test_model_when_called_by_a_short_name_then_its_repository_is_opened(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    repo = "HuggingFaceTB/SmolLM2-135M-Instruct"
    with ModelHost({repo: checkpoint_folder()}) as host:
        source = await resolve("smollm2:135m", hub=Hub(endpoint=host.endpoint), cache=tmp_path)
    assert source.model == repo


async def test_short_name_when_nobody_has_it_then_those_alike_are_told(tmp_path: Path) -> None:
    hub = Hub(endpoint="http://127.0.0.1:9")
    with pytest.raises(InvalidInput, match=r"qwen3:7b.*did you mean qwen3:0\.6b"):
        await resolve("qwen3:7b", hub=hub, cache=tmp_path)
    with pytest.raises(InvalidInput, match="session models"):
        await resolve("zzzzzz:1", hub=hub, cache=tmp_path)


async def test_repository_when_nobody_has_it_then_the_hub_is_searched(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({"some/Tiny-Model-3B": checkpoint_folder()}) as host:
        hub = Hub(endpoint=host.endpoint)
        with pytest.raises(NotFound, match=r"check the name.*did you mean some/Tiny-Model-3B\?"):
            await resolve("other/tiny-model", hub=hub, cache=tmp_path)
        with pytest.raises(NotFound, match="check the name"):
            await resolve("other/unheard", hub=hub, cache=tmp_path)
