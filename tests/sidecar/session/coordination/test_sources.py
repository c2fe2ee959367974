"""Waiting for where weights come from is no failure of a member; it ends for all at once, if it must."""

import pytest

from kafila_sidecar.session.hosting.waits import FETCH_SILENCE_S
from kafila_sidecar.session.judging.sources import SOURCE_DEADLINE_S
from tests.sidecar.session.party import NAMES, CoreParty

AWAY = "the model host answers 503, next try in 8 s"
STEP_S = 20.0


def fetching(slow: set[str]) -> CoreParty:
    """A session in which these never get their weights."""
    party = CoreParty(slow=slow)
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    assert party.serving == {}
    return party


def wait(party: CoreParty, seconds: float, *waiting: str) -> None:
    until = party.now + seconds
    while party.now < until:
        for name in waiting:
            epoch = party.proposals[-1].epoch
            party.obey(party.coordinator.progressed(name, epoch, "fetching", party.now, AWAY))
        party.advance(STEP_S)


@pytest.mark.parametrize("away_s", [16.0, FETCH_SILENCE_S + STEP_S, SOURCE_DEADLINE_S - STEP_S])
def test_session_when_the_source_is_away_for_a_while_then_no_member_falls_and_nothing_is_planned_again(
    away_s: float,
) -> None:
    party = fetching(set(NAMES))
    before = len(party.proposals)
    wait(party, away_s, *NAMES)
    assert party.removed == []
    assert party.aside == {}
    assert party.closed == {}
    assert len(party.proposals) == before
    for name in NAMES:
        party.do(name, party.machines[name].shard_loaded(party.proposals[-1].epoch))
    party.pump()
    assert set(party.serving) == set(NAMES)


def test_session_when_the_source_stays_away_then_it_ends_for_all_at_once_in_the_same_words() -> None:
    party = fetching(set(NAMES))
    wait(party, SOURCE_DEADLINE_S + STEP_S, *NAMES)
    assert set(party.closed) == set(NAMES)
    assert party.aside == {}
    sentences = {fault.sentence for fault in party.closed.values() if fault}
    assert sentences == {f"gave up fetching: ada, bob, cyd waited for 5 minutes: {AWAY}"}


def test_member_when_the_source_is_away_for_it_alone_then_the_others_go_on_without_it() -> None:
    party = fetching({"cyd"})
    wait(party, SOURCE_DEADLINE_S + STEP_S, "cyd")
    assert party.closed == {}
    assert AWAY in party.aside["cyd"]
    assert party.serving["ada"] == party.serving["bob"]


def test_session_when_bytes_come_in_between_then_the_wait_begins_anew() -> None:
    party = fetching(set(NAMES))
    for _ in range(3):
        wait(party, SOURCE_DEADLINE_S - STEP_S, *NAMES)
        for name in NAMES:
            party.obey(party.coordinator.progressed(name, party.proposals[-1].epoch, "fetching", party.now))
    assert party.closed == {}
