"""What the environment and the command line say, read once at the start and passed on as plain values."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafila_sidecar.weights.providers.settings import HubSettings, read_settings


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one sidecar."""

    socket: Path
    data: Path  # identities, weights, measurements, traces
    hub: HubSettings  # the model host
    rendezvous: str  # KAFILA_RENDEZVOUS; empty: the host of a session embeds one
    stun: str  # KAFILA_STUN: further STUN servers, host:port,...
    port_mapping: bool  # whether routers are asked to forward ports; KAFILA_PORT_MAPPING
    name: str  # this machine's name for people
    openblas: bool  # a quick BLAS on Linux CPUs

    @classmethod
    def read(cls, environment: Mapping[str, str], *, socket_path: Path, data: Path) -> "Config":
        """Settings from the environment."""
        return cls(
            socket=socket_path,
            data=data,
            hub=read_settings(environment),
            rendezvous=environment.get("KAFILA_RENDEZVOUS", ""),
            stun=environment.get("KAFILA_STUN", ""),
            port_mapping=environment.get("KAFILA_PORT_MAPPING", "1") != "0",
            name=environment.get("KAFILA_NAME") or socket.gethostname().split(".")[0] or "member",
            openblas=environment.get("KAFILA_OPENBLAS", "1") != "0",
        )


def default_data(environment: Mapping[str, str]) -> Path:
    """Where a sidecar keeps its things unless told: KAFILA_HOME, else ~/.kafila."""
    return Path(environment.get("KAFILA_HOME") or os.path.expanduser("~/.kafila"))
