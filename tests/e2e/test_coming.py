"""Somebody joins by the code while four answers run; the ring is planned with it once nobody waits for an answer."""

import re
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.conftest import NAMES, create, model_of, start, until
from tests.support.cluster import Cluster, ClusterMember, make_cluster
from tests.support.smollm2 import smollm2_folder
from tests.support.ties import is_same_or_tie
from tests.support.trouble import Reader, are_all_ready, read_at, until_read

PROMPTS = ("Once upon a time", "The sea was calm and", "In the year 1900", "A recipe for bread begins")
TOKENS = 120
IN_S = 90.0  # from typing the code to having been linked with everybody, on a busy machine
IDLE_GAIN, BUSY_GAIN = 10, 30  # per cent: a plan that gains less than the second waits until nobody does
LOOK_S = 0.2
LENT = "440MB"  # of the 1.3 GB that the model needs here, so that each of the first three has to have a part


@pytest.fixture
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    below = tmp_path_factory.mktemp("coming")
    with make_cluster(*NAMES, "dan", folders=(smollm2_folder(),), below=below) as made:
        yield made


def formed_without_the_last(four: Cluster) -> tuple[str, str]:
    """A session that has room for all, started with those who are there: its code and its model's name. Of a better
    plan it is only told."""
    host, *others, _ = four.members
    wanted = ("--members", "4", "--context", "1024", "--concurrency", "4", "--memory", LENT, "--replan", "ask")
    code, creating = create(host, str(smollm2_folder()), *wanted)
    joining = [start(member, "session", "join", code, "--yes", "--memory", LENT) for member in others]
    until(lambda: len(host.session()["members"]) == 3, 60)
    host.ollama("session", "start", check=True)
    for command in (creating, *joining):
        out, _ = command.communicate(timeout=100)
        assert command.returncode == 0, out
    return code, model_of(host.session())


def asked(members: Sequence[ClusterMember], model: str) -> list[Reader]:
    """Four answers, at each of these in turn."""
    return read_at([members[i % len(members)] for i in range(4)], PROMPTS, model, TOKENS)


def assert_ended(readers: Sequence[Reader], undisturbed: Sequence[Reader]) -> None:
    """Each with the text that it had before."""
    for reader, before in zip(readers, undisturbed, strict=True):
        reader.join()
        assert reader.error == ""
        assert is_same_or_tie(smollm2_folder(), reader.prompt, before.text, reader.text)


def told_gain(host: ClusterMember, newcomer: str) -> int:
    """By how many per cent the plan is better that the host tells of; 0 where it tells of none with the newcomer."""
    told = str(host.session()["better_plan"])
    gain = re.search(r"\(\+(\d+)%\)", told)
    return int(gain[1]) if gain and re.search(rf"\b{newcomer} \d", told) else 0


def epochs_while_running(host: ClusterMember, readers: Sequence[Reader]) -> set[int]:
    """Those that the host tells of for as long as any of the answers runs."""
    epochs = set[int]()
    while True:
        epoch = int(host.session()["epoch"])
        if not any(reader.is_alive() for reader in readers):
            return epochs
        epochs.add(epoch)
        time.sleep(LOOK_S)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_newcomer_when_it_joins_while_four_answers_run_then_they_end_right_and_it_has_a_part_once_idle(
    four: Cluster,
) -> None:
    *first, dan = four.members
    host = first[0]
    code, model = formed_without_the_last(four)
    undisturbed = asked(first, model)
    for reader in undisturbed:
        reader.join()
        assert reader.error == ""
    running = asked(first, model)
    until_read(running, 2)
    joining = start(dan, "session", "join", code, "--yes")
    assert_ended(running, undisturbed)
    out, _ = joining.communicate(timeout=IN_S)
    assert joining.returncode == 0, out
    until(lambda: are_all_ready(four.members), IN_S)
    until(lambda: told_gain(host, dan.name) >= IDLE_GAIN, IN_S)
    assert "Better plan" in host.ollama("session", "status", check=True).stdout

    before, running = int(host.session()["epoch"]), asked(four.members, model)
    until_read(running, 2)
    gain = told_gain(host, dan.name)
    host.ollama("session", "replan", "--auto", check=True)
    epochs = epochs_while_running(host, running)
    assert epochs == {before} or gain >= BUSY_GAIN
    assert_ended(running, undisturbed)
    until(lambda: are_all_ready(four.members) and int(host.session()["epoch"]) > before, IN_S)
    assert dan.name in {stage["member"] for stage in host.session()["stages"]}
    assert_ended(asked([dan, *first], model), undisturbed)
