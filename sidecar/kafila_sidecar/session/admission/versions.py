"""Whether what two machines run works together, and in which words a newcomer hears that it does not. Pure.

Every member computes the session's plan and takes no other, so that planners must be the same; mlx-lm decides the
numbers that a stage hands on, so that it must be too. Of the protocol each machine speaks a range of versions. Which
package of Kafila it all came in does not matter, and is only named.
"""

from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Refused

LONGEST_SHOWN = 40  # characters of another machine's version


@dataclass(frozen=True, slots=True)
class Protocols:
    """The versions of the protocol that a machine speaks, both ends included."""

    oldest: int
    newest: int

    def common(self, other: "Protocols") -> int | None:
        """The newest that both speak."""
        spoken = min(self.newest, other.newest)
        return spoken if spoken >= max(self.oldest, other.oldest) else None


PROTOCOLS = Protocols(oldest=1, newest=1)  # what this code speaks


@dataclass(frozen=True, slots=True)
class Versions:
    """What one machine runs. `kafila` is its package's, `planner` 0 where a machine says none."""

    kafila: str
    planner: int
    mlx_lm: str
    protocols: Protocols = PROTOCOLS


def check_versions(*, session: Versions, newcomer: Versions) -> None:
    """Raises Refused, in words for the newcomer's owner, when the two can't work together."""
    speak = session.protocols.common(newcomer.protocols) is not None
    same_planner, same_mlx_lm = session.planner == newcomer.planner, session.mlx_lm == newcomer.mlx_lm
    if speak and same_planner and same_mlx_lm:
        return
    named = [
        [] if speak else [f"protocol {one.protocols.newest}" for one in (session, newcomer)],
        [] if same_planner else [f"planner {one.planner or 'none'}" for one in (session, newcomer)],
        [] if same_mlx_lm else [f"mlx-lm {_shown(one.mlx_lm)}" for one in (session, newcomer)],
    ]
    ours, theirs = (" and ".join(pair[side] for pair in named if pair) for side in (0, 1))
    advice = [] if speak and same_planner else [_kafila_advice(session, newcomer)]
    advice += [] if same_mlx_lm else [f"install mlx-lm {_shown(session.mlx_lm)} on your machine"]
    raise Refused(f"this session runs {ours}, your machine {theirs}: {' and '.join(advice)}")


def _kafila_advice(session: Versions, newcomer: Versions) -> str:
    """The older one is to be updated, to what the other has."""
    if (newcomer.protocols.newest, newcomer.planner) < (session.protocols.newest, session.planner):
        return f"update Kafila on your machine to {_shown(session.kafila)}"
    return f"update Kafila on the session's machines to {_shown(newcomer.kafila)}"


def tell_offer(versions: Versions, offer: ring_pb2.OfferBody) -> None:
    """Writes the session's into its offer."""
    offer.version, offer.planner, offer.mlx_lm_version = versions.kafila, versions.planner, versions.mlx_lm
    offer.protocol, offer.oldest_protocol = versions.protocols.newest, versions.protocols.oldest


def told_by(body: ring_pb2.OfferBody | ring_pb2.EnrolBody | ring_pb2.ProofBody) -> Versions:
    """What the other side runs. Who names no oldest protocol speaks the newest only."""
    protocols = Protocols(body.oldest_protocol or body.protocol, body.protocol)
    return Versions(body.version, body.planner, body.mlx_lm_version, protocols)


def _shown(version: str) -> str:
    return "".join(letter for letter in version[:LONGEST_SHOWN] if letter.isprintable()) or "none"
