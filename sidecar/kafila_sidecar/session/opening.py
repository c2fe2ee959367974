"""A channel for a member that just came to be one, however it did, with what is kept of it on this disk."""

from dataclasses import dataclass, field
from pathlib import Path

from kafila_sidecar.session.admission.gathering import GatheringPace
from kafila_sidecar.session.admission.guesses import FileGuesses
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.channel import LONGEST_ABSENCE_S, Channel
from kafila_sidecar.session.channel.moving import TRIAL_S
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace, KeptSession
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere, nowhere
from kafila_sidecar.session.rendezvous.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class JoinDeadlines:
    """How long others are waited for, in seconds."""

    answer_s: float = 10.0  # for each answer of the host's
    busy_s: float = 10.0  # for how long a host that is busy is asked again
    busy_pause_s: float = 0.5  # and how often
    absence_s: float = LONGEST_ABSENCE_S  # for the others, when the rendezvous was away
    gathering: GatheringPace = field(default_factory=GatheringPace)
    trial_s: float = TRIAL_S  # for the first of them, in a room that was opened elsewhere


@dataclass(frozen=True, slots=True)
class Local:
    """What this machine brings to every session: what it runs, a folder for the count of guesses at a code and for what
    is kept of the session, and where it could open another room."""

    folder: Path
    versions: Versions
    deadlines: JoinDeadlines = JoinDeadlines()
    elsewhere: Elsewhere = nowhere


def open_channel(mailbox: Mailbox, replica: Replica, local: Local, keeper: Keeper | None = None) -> Channel:
    """`keeper`: of a member that comes back."""
    if keeper is None:
        keeper = keeper_of(local.folder, mailbox, replica)
    mailbox.hand_over()
    return Channel(
        mailbox=mailbox,
        replica=replica,
        guesses=FileGuesses(keeper.folder),
        versions=local.versions,
        keeper=keeper,
        elsewhere=local.elsewhere,
        absence_s=local.deadlines.absence_s,
        trial_s=local.deadlines.trial_s,
    )


def keeper_of(folder: Path, mailbox: Mailbox, replica: Replica) -> Keeper:
    """Of a member that is new."""
    kept = KeptSession(
        identity=replica.identity,
        name=replica.self_name,
        log=replica.log,
        key=replica.keys.key,
        places=(KeptPlace(mailbox.address, mailbox.place, is_first=True),),
    )
    return Keeper(folder, kept)
