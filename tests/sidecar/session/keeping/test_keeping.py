"""What is kept of a session: the same again after a crash at any moment, private, and never a reason to fail."""

import logging
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.session.keeping.file import HEADER, read_whole, write_whole
from kafila_sidecar.session.keeping.keeper import FILE, REACHED_EVERY_S, Keeper, kept_sessions
from kafila_sidecar.session.keeping.kept import KEPT_FOR_S, MOST_PLACES, KeptPlace, KeptSession, kept_from
from kafila_sidecar.session.membership.entries import admit, found_log, remove
from kafila_sidecar.session.membership.identity import make_identity
from kafila_sidecar.session.membership.keyring import Keyring
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace
from tests.sidecar.session.channel_world import TERMS
from tests.support.fuzz import fuzz

HOST = make_identity()
PLACE = KeptPlace(
    parse_address("192.0.2.7:7770#jlyz4dfazcnx7dpb4mdg"), MailboxPlace(7, 2, host=1, secret=b"s" * 32), True
)


def kept() -> KeptSession:
    log = found_log(HOST, session=bytes(16), terms=TERMS, name="hal", mailbox=1)
    other = make_identity()
    admit(log, HOST, name="ada", certificate=other.der, agreement=other.agreement, mailbox=2)
    return KeptSession(
        identity=HOST,
        name="hal",
        log=log,
        key=bytes(range(32)),
        places=(PLACE,),
        words=("ocean", "velvet", "lamp"),
        lend_bytes=7,
        typed="7-ocean-velvet-lamp",
        stub_model=pb.StubModel(name="m").SerializeToString(),
        formed=True,
        seen_at=1000.5,
        rests_until=1200.5,
        note="anybody",
        model="/models/mine",
    )


def test_session_when_read_again_then_it_is_the_same() -> None:
    before = kept()
    after = kept_from(before.to_bytes())
    assert after.to_bytes() == before.to_bytes()
    assert (after.name, after.words, after.places, after.log.members) == (
        before.name, before.words, before.places, before.log.members
    )  # fmt: skip
    message = b"signed by the same key"
    assert after.identity.sign(b"control", message) == HOST.sign(b"control", message)


def test_reach_when_members_say_where_they_are_then_kept_for_those_who_may_be_again() -> None:
    before = kept()
    hal, ada = before.log.members
    before = before.reached(ada, [(f"192.0.2.{number}", 4000) for number in range(1, 20)])
    after = kept_from(before.to_bytes())
    assert after.reach == before.reach == {ada.fingerprint: tuple((f"192.0.2.{n}", 4000) for n in range(1, 9))}
    _, new_key = Keyring(identity=HOST, session=bytes(16), number=1, key=bytes(32), entropy=os.urandom).draw([hal])
    remove(before.log, HOST, name="ada", reason="removed", new_key=new_key)
    assert before.reached(hal, []).reach == {hal.fingerprint: ()}


def test_reach_when_somebody_says_so_all_the_time_then_the_disk_is_written_now_and_then(tmp_path: Path) -> None:
    now = [100.0]
    keeper = Keeper(tmp_path / "one", kept(), clock=lambda: now[0])
    ada = keeper.kept.log.members[1]
    for port in range(1, 50):
        now[0] += 0.2
        keeper.reached(ada, [("192.0.2.1", port)])
        on_disk = next(kept_sessions(tmp_path)).kept.reach[ada.fingerprint][0][1]
        assert port - on_disk <= REACHED_EVERY_S / 0.2
    keeper.note()
    assert next(kept_sessions(tmp_path)).kept.reach == keeper.kept.reach


def test_rest_when_this_machine_is_started_again_then_as_much_is_left_as_its_clock_says(tmp_path: Path) -> None:
    now = [5000.0]
    keeper = Keeper(tmp_path / "one", kept(), clock=lambda: now[0])
    assert keeper.rests_s == 0.0
    written = []
    for _ in range(100):  # seen again and again as it goes by
        keeper.rests(300.0 - (now[0] - 5000.0))
        written.append((tmp_path / "one" / FILE).stat().st_ino)
        now[0] += 1.0
    assert len(set(written)) == 1
    again = Keeper(tmp_path / "one", next(kept_sessions(tmp_path)).kept, clock=lambda: now[0])
    assert again.rests_s == pytest.approx(200.0)
    now[0] += 200.0
    assert again.rests_s == 0.0


def test_places_when_a_host_moves_again_and_again_then_where_this_member_came_is_never_forgotten() -> None:
    """At other rendezvous, at the same one, and after a move back to it."""
    for back in (False, True):
        now = replace(kept(), places=(PLACE,))
        for number in range(3 * MOST_PLACES):
            address = PLACE.address if number % 3 == 0 else parse_address(f"grpc+insecure://127.0.0.1:{7000 + number}")
            room = MailboxPlace(100 + number, 1, host=1, secret=bytes(32))
            now = now.at(KeptPlace(address, room))
            now = now.at(PLACE) if back and number == MOST_PLACES else now
            now = kept_from(now.to_bytes())
            assert PLACE in now.places
            assert len(now.places) <= MOST_PLACES
            assert len(set(now.places)) == len(now.places)
        assert [one for one in now.places if one.is_first] == [PLACE]


@pytest.mark.parametrize("former", [(), (replace(PLACE, address=parse_address("grpc+insecure://127.0.0.1:7001")),)])
def test_places_when_a_member_comes_back_to_its_room_then_one_mailbox_there_is_kept(
    former: tuple[KeptPlace, ...],
) -> None:
    """Two would be two rooms to a host, which says in a room of before where the session is."""
    again = KeptPlace(replace(PLACE.address, host="192.0.2.8"), replace(PLACE.mailbox, mailbox=5))
    now = replace(kept(), places=(PLACE, *(replace(one, is_first=False) for one in former))).at(again)
    assert now.places[0] == again
    assert now.places[0].is_first
    assert now.places[1:] == former
    both = replace(now, places=(replace(again, is_first=False), PLACE))  # as an earlier version has kept it
    assert [(one.mailbox.mailbox, one.is_first) for one in kept_from(both.to_bytes()).places] == [(5, True)]


def test_places_when_this_member_has_another_mailbox_in_the_room_where_it_came_then_that_room_is_one_place() -> None:
    """Else the host would answer in its own room as in one of before, and send away those who come back."""
    again = replace(PLACE, mailbox=replace(PLACE.mailbox, mailbox=9), is_first=False)
    after = replace(kept(), places=(PLACE,)).at(again)
    assert after.places == (again,)
    assert after.places[0].is_first


def test_places_when_they_were_written_before_the_first_was_marked_then_it_is_the_oldest() -> None:
    other = replace(PLACE, address=parse_address("grpc+insecure://127.0.0.1:7001"))
    former = (replace(other, is_first=False), replace(PLACE, is_first=False))
    after = kept_from(replace(kept(), places=former).to_bytes())
    assert [one.is_first for one in after.places] == [False, True]


def test_places_when_a_rendezvous_has_another_address_then_its_rooms_are_there() -> None:
    other = replace(PLACE, address=parse_address("192.0.2.8:7770#jlyz4dfazcnx7dpb4mdh"))
    before = replace(kept(), places=(PLACE, other))
    moved = parse_address("198.51.100.1:7000#jlyz4dfazcnx7dpb4mdg")
    assert before.known_as(moved).places == (replace(PLACE, address=moved), other)
    assert before.was_at(moved)


def test_file_when_written_then_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "kept"
    write_whole(path, b"secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_whole(path) == b"secret"


def test_file_when_writing_stopped_at_any_byte_then_what_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_whole(path, b"before")
    write_whole(tmp_path / "other", b"after, and longer")
    whole = (tmp_path / "other").read_bytes()
    for length in range(len(whole) + 1):
        path.with_name("kept.new").write_bytes(whole[:length])
        assert read_whole(path) == b"before"
    write_whole(path, b"later")  # over what the crash has left
    assert read_whole(path) == b"later"


def test_file_when_cut_at_any_byte_or_flipped_then_set_aside_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept"
    write_whole(path, b"all of it")
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    damaged.append(whole + b"x")
    for data in damaged:
        path.write_bytes(data)
        caplog.clear()
        assert read_whole(path) is None
        assert "renamed to kept.broken" in caplog.text
        assert not path.exists()
        assert (tmp_path / "kept.broken").read_bytes() == data


def test_file_when_the_disk_has_no_room_then_the_one_before_stays(tmp_path: Path) -> None:
    """A child with a limit on the size of files, as a full disk ends a write in the middle."""
    path = tmp_path / "kept"
    write_whole(path, b"before")
    child = os.fork()
    if child == 0:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        try:
            write_whole(path, b"x" * 1000)
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert read_whole(path) == b"before"


def test_keeper_when_it_can_not_write_then_it_says_so_once_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    keeper = Keeper(tmp_path / "file" / "one", kept())  # no folder can be there
    with caplog.at_level(logging.WARNING):
        keeper.note(typed="a")
        keeper.note(typed="b")
    assert "can't be written" in keeper.trouble
    assert caplog.text.count("can't be written") == 1
    assert keeper.kept.typed == "b"
    keeper.folder = tmp_path / "one"
    keeper.note()
    assert keeper.trouble == ""


def test_sessions_when_one_of_them_is_damaged_then_the_others_are_there(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Keeper(tmp_path / name, replace(kept(), typed=name)).note()
    (tmp_path / "a" / FILE).write_bytes(HEADER)
    write_whole(tmp_path / "b" / FILE, b"\x0a\xff")  # well kept nonsense
    assert [one.kept.typed for one in kept_sessions(tmp_path)] == ["c"]
    assert [path.parent.name for path in sorted(tmp_path.glob("*/kept.broken"))] == ["a", "b"]


def test_keeper_when_it_forgets_then_nothing_is_left_and_nothing_comes_back(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "one", kept())
    keeper.note()
    keeper.forget()
    keeper.note(typed="late")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seen_at", "now", "too_old"),
    [
        (0.0, KEPT_FOR_S - 1, False),
        (0.0, KEPT_FOR_S + 1, True),
        (1e9, 5.0, False),  # the clock was ahead when it was noted, or is behind now
    ],
)
def test_keeper_when_asked_how_old_it_is_then_a_clock_put_back_ends_nothing(
    tmp_path: Path, seen_at: float, now: float, too_old: bool
) -> None:
    keeper = Keeper(tmp_path, replace(kept(), seen_at=seen_at), clock=lambda: now)
    assert keeper.is_too_old == too_old
    keeper.seen()
    assert keeper.kept.seen_at == now
    assert not keeper.is_too_old


@pytest.mark.fuzz
def test_session_when_the_bytes_are_hostile_then_typed() -> None:
    assert fuzz(kept_from, [kept().to_bytes()], errors=(KafilaError,)) >= 1
