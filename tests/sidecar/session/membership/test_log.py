"""The membership log: what it shows, and that nothing but the host's one history gets in."""

from collections.abc import Callable

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, Refused
from kafila_sidecar.session.membership.entries import admit, found_log, lock, remove, rule, take_back
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import LARGEST_LOG_BYTES, LONGEST_LOG, Gap, Log, replay
from kafila_sidecar.session.membership.members import Gone, Joined, Locking, Rejoined, Replanning, Ruling
from kafila_sidecar.session.membership.rivals import Forked

SESSION = bytes(range(16))
HOST, ANNA, BEN = make_identity(), make_identity(), make_identity()
TERMS = ring_pb2.SessionTerms(model="m", context_tokens=4096)
NEW_KEY = b"wrapped"


def keys(identity: Identity) -> dict[str, bytes]:
    return {"certificate": identity.der, "agreement": identity.agreement}


def founded() -> Log:
    return found_log(HOST, session=SESSION, terms=TERMS, name="host", mailbox=1)


def of_three() -> Log:
    log = founded()
    admit(log, HOST, name="anna", **keys(ANNA), mailbox=2)
    admit(log, HOST, name="ben", **keys(BEN), mailbox=3)
    return log


def signed(entry: ring_pb2.LogEntry, by: Identity = HOST) -> ring_pb2.SignedEntry:
    data = entry.SerializeToString(deterministic=True)
    return ring_pb2.SignedEntry(entry=data, signature=by.sign(b"log entry", data))


def next_entry(log: Log) -> ring_pb2.LogEntry:
    """A fitting next entry, made beside the log."""
    beside = replay(SESSION, log.entries)
    made = admit(beside, HOST, name="carl", **keys(make_identity()), mailbox=9)
    return ring_pb2.LogEntry.FromString(made.entry)


def test_replay_when_log_is_whole_then_same_members_and_terms() -> None:
    log = of_three()
    remove(log, HOST, name="anna", reason="left", new_key=NEW_KEY)
    copy = replay(SESSION, log.entries)
    assert copy.members == log.members
    assert [(member.name, member.mailbox, member.index) for member in copy.members] == [("host", 1, 0), ("ben", 3, 2)]
    assert (copy.host, copy.founder, copy.terms, copy.now.key_number) == ("host", "host", TERMS, 2)
    assert copy.members[0].fingerprint == HOST.fingerprint


def test_append_when_entry_is_new_then_says_what_changed_and_once_only() -> None:
    log, copy = of_three(), Log(SESSION)
    remove(log, HOST, name="ben", reason="lost", new_key=NEW_KEY)
    changes = [copy.append(entry) for entry in log.entries]
    assert [type(change) for change in changes] == [Joined, Joined, Joined, Gone]
    assert [copy.append(entry) for entry in log.entries] == [None] * 4


def test_append_when_an_entry_is_missing_then_gap_and_later_it_fits() -> None:
    log, copy = of_three(), Log(SESSION)
    first, second, third = log.entries
    copy.append(first)
    with pytest.raises(Gap) as gap:
        copy.append(third)
    assert gap.value.index == 2
    copy.append(second)
    copy.append(third)
    assert copy.members == log.members


def test_append_when_host_signs_two_histories_then_forked() -> None:
    one = founded()
    two = replay(SESSION, one.entries)
    admit(one, HOST, name="anna", **keys(ANNA), mailbox=2)
    other = admit(two, HOST, name="ben", **keys(BEN), mailbox=2)
    with pytest.raises(Forked):
        one.append(other)
    later = admit(two, HOST, name="anna", **keys(ANNA), mailbox=3)
    with pytest.raises(Forked):
        one.append(later)
    assert [member.name for member in one.members] == ["host", "anna"]


def test_append_when_a_stranger_writes_a_second_history_then_denied_and_not_forked() -> None:
    log = of_three()
    stranger = make_identity()
    theirs = found_log(stranger, session=SESSION, terms=TERMS, name="host", mailbox=1)
    admit(theirs, stranger, name="eve", **keys(make_identity()), mailbox=2)
    for entry in theirs.entries:
        with pytest.raises(Denied) as caught:
            log.append(entry)
        assert not isinstance(caught.value, Forked)


Change = Callable[[ring_pb2.LogEntry], None]


def admits(**fields: object) -> Change:
    def change(entry: ring_pb2.LogEntry) -> None:
        for field, value in fields.items():
            setattr(entry.admitted, field, value)

    return change


def removes(name: str, reason: str, rekey: bytes = bytes(32)) -> Change:
    return lambda entry: entry.removed.CopyFrom(ring_pb2.Removed(name=name, reason=reason, rekey=rekey))


WRONG: dict[str, tuple[type[KafilaError], Change]] = {
    "another session": (Denied, lambda entry: setattr(entry, "session", bytes(16))),
    "a chain that breaks": (Forked, lambda entry: setattr(entry, "previous", bytes(32))),
    "an earlier index": (Forked, lambda entry: setattr(entry, "index", 1)),
    "no change": (InvalidInput, lambda entry: entry.ClearField("admitted")),
    "a second founding": (InvalidInput, lambda entry: entry.founded.CopyFrom(ring_pb2.Founded())),
    "a name twice": (InvalidInput, admits(name="ANNA")),
    "an illegal name": (InvalidInput, admits(name="a\nb")),
    "a certificate twice": (InvalidInput, admits(certificate=ANNA.der)),
    "no certificate": (InvalidInput, admits(certificate=b"")),
    "no agreement key": (InvalidInput, admits(agreement=b"")),
    "an agreement key that agrees with everybody": (InvalidInput, admits(agreement=bytes(32))),
    "removal of the host": (InvalidInput, removes("host", "left")),
    "removal without a new key": (InvalidInput, removes("anna", "left", rekey=b"")),
    "removal of a stranger": (InvalidInput, removes("eve", "left")),
    "removal for no reason": (InvalidInput, removes("anna", "")),
}


@pytest.mark.parametrize("name", WRONG)
def test_append_when_signed_entry_makes_no_sense_then_refused_and_log_stays(name: str) -> None:
    error, change = WRONG[name]
    log = of_three()
    entry = next_entry(log)
    change(entry)
    with pytest.raises(error):
        log.append(signed(entry))
    assert len(log) == 3
    assert [member.name for member in log.members] == ["host", "anna", "ben"]


def test_append_when_entry_is_not_signed_by_the_host_then_denied() -> None:
    log = of_three()
    entry = next_entry(log)
    for forged in (
        signed(entry, by=ANNA),
        ring_pb2.SignedEntry(entry=entry.SerializeToString()),
        ring_pb2.SignedEntry(entry=signed(entry).entry + b"\x18\x00", signature=signed(entry).signature),
    ):
        with pytest.raises((Denied, InvalidInput)):
            log.append(forged)
    assert len(log) == 3


def test_admit_when_certificate_was_removed_before_then_it_does_not_come_back() -> None:
    log = of_three()
    remove(log, HOST, name="anna", reason="removed", new_key=NEW_KEY)
    with pytest.raises(InvalidInput, match="admitted before"):
        admit(log, HOST, name="anna", **keys(ANNA), mailbox=4)
    admit(log, HOST, name="anna", **keys(make_identity()), mailbox=4)


def test_rule_when_written_then_everybody_knows_it_and_nothing_else_is_taken_for_one() -> None:
    log = founded()
    rule(log, HOST, replanning=Replanning.ASK)
    copy = replay(SESSION, log.entries)
    assert (copy.now.replanning, copy.last_change) == (Replanning.ASK, Ruling(Replanning.ASK))
    with pytest.raises(InvalidInput, match="better plan"):
        rule(log, HOST, replanning="sometimes")  # type: ignore[arg-type]
    assert len(log) == 2


def test_lock_when_written_then_everybody_knows_and_members_stay() -> None:
    log = of_three()
    lock(log, HOST, locked=True)
    copy = replay(SESSION, log.entries)
    assert (copy.now.locked, copy.last_change) == (True, Locking(True))
    lock(log, HOST, locked=False)
    assert not log.now.locked
    assert log.members == copy.members


def test_admit_when_log_is_full_then_refused_in_words() -> None:
    log = founded()
    while len(log) < LONGEST_LOG:
        lock(log, HOST, locked=len(log) % 2 == 0)
    with pytest.raises(Refused, match="create a new session"):
        admit(log, HOST, name="ben", **keys(BEN), mailbox=3)


def test_replay_when_there_is_nothing_then_invalid() -> None:
    with pytest.raises(InvalidInput):
        replay(SESSION, [])


# ---- Coming back


def test_returned_when_a_member_was_lost_then_it_is_the_same_one_and_the_last_in_order() -> None:
    log = of_three()
    before = log.now.members["anna"]
    remove(log, HOST, name="anna", reason="lost", new_key=NEW_KEY)
    assert list(log.away) == ["anna"]
    take_back(log, HOST, admitted=before.index, mailbox=8)
    assert not log.away
    after = log.now.members["anna"]
    assert [member.name for member in log.members] == ["host", "ben", "anna"]
    assert (after.fingerprint, after.agreement) == (before.fingerprint, before.agreement)
    assert (after.mailbox, after.index, after.first_index) == (8, 4, before.index)
    assert replay(SESSION, log.entries).members == log.members
    assert replay(SESSION, log.bare).members == log.members


def test_returned_when_it_comes_back_again_and_again_then_each_time_by_its_first_entry() -> None:
    log = of_three()
    for mailbox in (8, 9, 10):
        remove(log, HOST, name="anna", reason="lost", new_key=NEW_KEY)
        take_back(log, HOST, admitted=1, mailbox=mailbox)
    assert log.now.members["anna"].mailbox == 10
    assert log.now.key_number == 4


def test_returned_when_it_is_a_member_still_then_its_mailbox_is_another_and_the_host_begins_anew() -> None:
    log = of_three()
    take_back(log, HOST, admitted=1, mailbox=8)
    assert isinstance(log.last_change, Rejoined)
    assert log.last_change.was_member
    assert log.now.takeovers == 0
    take_back(log, HOST, admitted=0, mailbox=9)
    assert (log.host, log.now.takeovers, log.now.key_number) == ("host", 1, 1)
    assert [member.name for member in log.members] == ["ben", "anna", "host"]


@pytest.mark.parametrize("reason", ["left", "removed"])
def test_returned_when_it_left_or_was_put_out_then_never_again(reason: str) -> None:
    log = of_three()
    remove(log, HOST, name="anna", reason="lost", new_key=NEW_KEY)
    take_back(log, HOST, admitted=1, mailbox=8)
    remove(log, HOST, name="anna", reason=reason, new_key=NEW_KEY)
    assert not log.away
    with pytest.raises(InvalidInput, match="for good"):
        take_back(log, HOST, admitted=1, mailbox=9)


@pytest.mark.parametrize("admitted", [3, 4, 99])
def test_returned_when_nobody_was_admitted_there_then_refused(admitted: int) -> None:
    log = of_three()
    remove(log, HOST, name="anna", reason="lost", new_key=NEW_KEY)
    with pytest.raises(InvalidInput, match="never was"):
        take_back(log, HOST, admitted=admitted, mailbox=9)


def test_returned_when_somebody_else_signs_it_then_denied() -> None:
    log = of_three()
    entry = ring_pb2.LogEntry(returned=ring_pb2.Returned(admitted=1, mailbox=9))
    entry.index, entry.session, entry.previous = log.place.index, SESSION, log.place.previous
    with pytest.raises(Denied):
        log.append(signed(entry, by=BEN))


def test_append_when_the_log_takes_too_many_bytes_then_refused() -> None:
    log = of_three()
    while log.size_bytes < LARGEST_LOG_BYTES and len(log) < LONGEST_LOG:
        take_back(log, HOST, admitted=1, mailbox=9)
    with pytest.raises(Refused, match="full"):
        take_back(log, HOST, admitted=1, mailbox=9)
    assert log.size_bytes <= LARGEST_LOG_BYTES + 256
