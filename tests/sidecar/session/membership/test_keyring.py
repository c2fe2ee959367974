"""Keys that pairs share, the group's next key, and which of them open what."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.agreement import check_agreement, pair_keys
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.keyring import KEPT_KEYS, Early, Keyring
from kafila_sidecar.session.membership.members import Member
from tests.sidecar.session.trust_world import KEY, SESSION, entropy

ANNA, BEN, EVE = make_identity(), make_identity(), make_identity()


def member(name: str, identity: Identity, index: int) -> Member:
    return Member(name, identity.der, identity.fingerprint, identity.agreement, index, index)


PEOPLE = (member("anna", ANNA, 1), member("ben", BEN, 2))


def keyring(identity: Identity, number: int = 1) -> Keyring:
    return Keyring(identity=identity, session=SESSION, number=number, key=KEY, entropy=entropy(identity.der.hex()))


def wrapped(**changes: object) -> bytes:
    asked: dict[str, object] = {"session": SESSION, "number": 2, "readers": PEOPLE, "entropy": entropy("wrap")}
    return rekey.wrap(b"k" * 32, **{**asked, **changes})  # type: ignore[arg-type]


def opened(data: bytes, identity: Identity, index: int, number: int = 2, session: bytes = SESSION) -> bytes:
    return rekey.unwrap(data, session=session, number=number, own=identity.agreement_key, index=index)


def test_pair_keys_when_both_ends_derive_them_then_equal_and_nobody_elses() -> None:
    ours = pair_keys(SESSION, ANNA.agreement_key, BEN.agreement)
    assert ours == pair_keys(SESSION, BEN.agreement_key, ANNA.agreement)
    others = [
        pair_keys(bytes(16), ANNA.agreement_key, BEN.agreement),
        pair_keys(SESSION, ANNA.agreement_key, EVE.agreement),
        pair_keys(SESSION, EVE.agreement_key, BEN.agreement),
    ]
    assert len({secret for keys in (ours, *others) for secret in (keys.seal, keys.link)}) == 8


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(32), b"\x01" + bytes(31), b"\xff" * 31 + b"\x7f"])
def test_agreement_key_when_it_is_none_then_invalid_or_harmless(key: bytes) -> None:
    if len(key) == 32 and key[0] == 0xFF:  # not reduced, but a point like any other
        check_agreement(key)
        return
    with pytest.raises(InvalidInput):
        check_agreement(key)


def test_rekey_when_wrapped_for_readers_then_each_opens_its_own_and_nobody_else_any() -> None:
    data = wrapped()
    assert opened(data, ANNA, 1) == opened(data, BEN, 2) == b"k" * 32
    for identity, index in ((ANNA, 2), (EVE, 1), (EVE, 3)):
        with pytest.raises(Denied):
            opened(data, identity, index)


def test_rekey_when_it_is_for_another_number_or_session_then_denied() -> None:
    with pytest.raises(Denied):
        opened(wrapped(), ANNA, 1, number=3)
    with pytest.raises(Denied):
        opened(wrapped(), ANNA, 1, session=bytes(16))


def test_rekey_when_made_twice_then_nothing_repeats() -> None:
    draw = entropy("once")
    one, two = (ring_pb2.Rekey.FromString(wrapped(entropy=draw)) for _ in range(2))
    assert one.ephemeral != two.ephemeral
    assert len({key.sealed for message in (one, two) for key in message.keys}) == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        bytes(rekey.LARGEST_REKEY_BYTES + 1),
        ring_pb2.Rekey(ephemeral=bytes(32), keys=[ring_pb2.WrappedKey(member=1, sealed=bytes(48))]).SerializeToString(),
    ],
)
def test_rekey_when_bytes_are_hostile_then_typed(data: bytes) -> None:
    with pytest.raises(KafilaError):
        opened(data, ANNA, 1)


def test_keyring_when_a_key_was_replaced_then_the_latest_few_open_and_older_ones_do_not() -> None:
    ours, theirs = keyring(ANNA), keyring(BEN)
    sealed = []
    for number in range(1, KEPT_KEYS + 2):
        sealed.append(ring_pb2.Sealed.FromString(ours.seal(b"plain", number=number)))
        for keys in (ours, theirs):
            keys.take(bytes([number]) * 32)
    with pytest.raises(Denied, match="long replaced"):
        theirs.open(sealed[0], PEOPLE)
    for message in sealed[2:]:
        assert theirs.open(message, PEOPLE) == b"plain"


def test_keyring_when_key_or_writer_is_not_known_yet_then_early() -> None:
    ours, theirs = keyring(ANNA), keyring(BEN)
    ours.take(b"2" * 32)
    with pytest.raises(Early):
        theirs.open(ring_pb2.Sealed.FromString(ours.seal(b"plain", number=2)), PEOPLE)
    with pytest.raises(Early):
        theirs.open(ring_pb2.Sealed(pair=9), PEOPLE)


def test_keyring_when_the_host_writes_by_an_entry_that_is_not_known_then_read_and_nobody_elses() -> None:
    """It may have come back by that entry, and nobody else can say so."""
    for writer, is_read in ((ANNA, True), (EVE, False)):
        sealed = ring_pb2.Sealed.FromString(keyring(writer).seal_for(PEOPLE[1], b"plain", writer=9))
        if is_read:
            assert keyring(BEN).open(sealed, PEOPLE, signs_own_return=PEOPLE[0]) == b"plain"
        with pytest.raises(Early):
            keyring(BEN).open(sealed, PEOPLE, signs_own_return=None if is_read else PEOPLE[0])


def test_keyring_when_sealed_for_one_member_then_only_it_reads_it_and_only_as_the_writers() -> None:
    sealed = ring_pb2.Sealed.FromString(keyring(ANNA).seal_for(PEOPLE[1], b"plain", writer=1))
    assert keyring(BEN).open(sealed, PEOPLE) == b"plain"
    with pytest.raises(Denied):
        keyring(EVE).open(sealed, PEOPLE)
    sealed.pair = 2
    with pytest.raises(Denied):
        keyring(BEN).open(sealed, PEOPLE)
