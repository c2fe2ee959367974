"""What the head does with a state that came back from the last stage: it picks a token, and sends it on its way."""

from dataclasses import dataclass

from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.sample import Sampler


@dataclass(frozen=True, slots=True)
class Pick:
    """state: after the last block. goes_on: the token is followed by another one, unless it ends the answer."""

    sequence: int
    state: HiddenState
    sampler: Sampler
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Picked:
    """A token, and its own state after the head's blocks where the answer goes on."""

    token: int
    state: HiddenState | None
