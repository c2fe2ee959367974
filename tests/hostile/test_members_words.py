"""What one member says of others, and of itself, that would end or stop the session for all."""

import pytest

from kafila_sidecar.session.coordination.knowledge import Knowledge
from tests.sidecar.session.party import CoreParty

NAMES = ("ada", "bob", "cyd", "dan", "eve")


def party_of(*names: str) -> CoreParty:
    party = CoreParty(wanted=len(names), blocks=3)
    party.measure("ada")
    for name in names[1:]:
        party.join(name)
        party.measure(name)
    return party


@pytest.mark.parametrize("accused", ["ada", "bob"])
def test_complaints_when_two_who_get_no_frames_from_a_member_make_them_then_nobody_goes(accused: str) -> None:
    party = party_of(*NAMES)
    plans = len(party.proposals)
    ring = party.proposals[-1]
    by = [name for name in NAMES if name != accused and ring.before(name) != accused]
    for one in (*by, *by):
        party.obey(party.coordinator.misbehaved(accused, one, party.now))
    assert party.removed == []
    assert set(party.machines) == set(NAMES)
    assert len(party.proposals) == plans


@pytest.mark.parametrize("epoch", [0, 9, 1 << 31, (1 << 32) - 1])
def test_loaded_when_a_member_tells_it_of_an_epoch_to_come_then_that_of_others_counts(epoch: int) -> None:
    knows = Knowledge()
    knows.loaded("eve", epoch)
    for name in ("bob", "cyd", "dan"):
        knows.loaded(name, 3)
    assert knows.who_loaded(3) == {"bob", "cyd", "dan"}
    knows.loaded("eve", 3)
    assert knows.who_loaded(3) == {"bob", "cyd", "dan", "eve"}
    knows.keep(["bob"])
    assert knows.who_loaded(3) == {"bob"}
