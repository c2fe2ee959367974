"""Somebody joins by the code while four answers run."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NAMES, create, model_of, start, until
from tests.support.cluster import Cluster, make_cluster
from tests.support.smollm2 import smollm2_folder
from tests.support.ties import is_same_or_tie
from tests.support.trouble import are_all_ready, read_at, until_read

PROMPTS = ("Once upon a time", "The sea was calm and", "In the year 1900", "A recipe for bread begins")
TOKENS = 120
IN_S = 90.0  # from typing the code to having been linked with everybody, on a busy machine


@pytest.fixture
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    below = tmp_path_factory.mktemp("coming")
    with make_cluster(*NAMES, "dan", folders=(smollm2_folder(),), below=below) as made:
        yield made


def formed_without_the_last(four: Cluster) -> tuple[str, str]:
    """A session that has room for all, started with those who are there: its code and its model's name."""
    host, *others, _ = four.members
    code, creating = create(host, str(smollm2_folder()), "--members", "4", "--context", "1024", "--concurrency", "4")
    joining = [start(member, "session", "join", code, "--yes") for member in others]
    until(lambda: len(host.session()["members"]) == 3, 60)
    host.ollama("session", "start", check=True)
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    return code, model_of(host.session())


@pytest.mark.long
@pytest.mark.timeout(400)
def test_newcomer_when_it_joins_while_four_answers_run_then_they_end_right_and_it_is_asked_like_the_others(
    four: Cluster,
) -> None:
    *first, dan = four.members
    code, model = formed_without_the_last(four)
    undisturbed = read_at([first[i % 3] for i in range(4)], PROMPTS, model, TOKENS)
    for reader in undisturbed:
        reader.join()
        assert reader.error == ""
    running = read_at([first[i % 3] for i in range(4)], PROMPTS, model, TOKENS)
    until_read(running, 2)
    joining = start(dan, "session", "join", code, "--yes")
    for reader, before in zip(running, undisturbed, strict=True):
        reader.join()
        assert reader.error == ""
        assert is_same_or_tie(smollm2_folder(), reader.prompt, before.text, reader.text)
    out, _ = joining.communicate(timeout=IN_S)
    assert joining.returncode == 0, out
    until(lambda: are_all_ready(four.members), IN_S)
    (asked,) = read_at([dan], PROMPTS, model, TOKENS)
    asked.join()
    assert asked.error == ""
    assert is_same_or_tie(smollm2_folder(), asked.prompt, undisturbed[0].text, asked.text)
