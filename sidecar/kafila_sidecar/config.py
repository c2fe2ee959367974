"""What the environment and the command line say, read once at the start and passed on as plain values."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.weights.providers.settings import HubSettings, read_settings

SPAN_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")  # OpenTelemetry's own
_RENDEZVOUS = "rendezvous.address"
_LONGEST_ADDRESS = 1000  # characters of it that are read
_UNITS = {
    **{"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40},
}
_SIZE = re.compile(r"(?P<number>\d{1,15}(\.\d{1,6})?)\s*(?P<unit>[KMGT]?I?B|)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one sidecar."""

    socket: Path
    data: Path  # weights, measurements, traces, what sessions count
    hub: HubSettings  # the model host
    folders: tuple[Path, ...]  # KAFILA_FOLDERS: where other members' folders may lie on this machine too
    weights_limit_bytes: int  # KAFILA_WEIGHTS_LIMIT, the most that weights should take on this disk; 0: no limit
    spare_bytes: int | None  # KAFILA_SPARE, the most that is fetched for others' loss; None: a tenth of the free disk
    rendezvous: str  # KAFILA_RENDEZVOUS; empty: what is kept in `data`, else the host of a session embeds one
    stun: str  # KAFILA_STUN: further STUN servers, host:port,...
    port_mapping: bool  # whether routers are asked to forward ports; KAFILA_PORT_MAPPING
    mdns: bool  # whether this network is told, and asked, where embedded rendezvous are; KAFILA_MDNS
    name: str  # this machine's name for people
    openblas: bool  # a quick BLAS on Linux CPUs
    spans: bool  # whether OTEL_EXPORTER_OTLP_ENDPOINT names where requests are told of

    @classmethod
    def read(cls, environment: Mapping[str, str], *, socket_path: Path, data: Path) -> "Config":
        """Settings from the environment."""
        return cls(
            socket=socket_path,
            data=data,
            hub=read_settings(environment),
            folders=tuple(Path(one) for one in environment.get("KAFILA_FOLDERS", "").split(os.pathsep) if one),
            weights_limit_bytes=size_bytes("KAFILA_WEIGHTS_LIMIT", environment.get("KAFILA_WEIGHTS_LIMIT", "")),
            spare_bytes=size_bytes("KAFILA_SPARE", spare) if (spare := environment.get("KAFILA_SPARE", "")) else None,
            rendezvous=environment.get("KAFILA_RENDEZVOUS", ""),
            stun=environment.get("KAFILA_STUN", ""),
            port_mapping=environment.get("KAFILA_PORT_MAPPING", "1") != "0",
            mdns=environment.get("KAFILA_MDNS", "1") != "0",
            name=environment.get("KAFILA_NAME") or socket.gethostname().split(".")[0] or "member",
            openblas=environment.get("KAFILA_OPENBLAS", "1") != "0",
            spans=any(environment.get(name) for name in SPAN_VARIABLES),
        )

    @property
    def models(self) -> Path:
        """Where weights are kept."""
        return self.data / "models"

    def meeting_place(self) -> str:
        """Where sessions meet: KAFILA_RENDEZVOUS, else what `ollama session rendezvous set` keeps by now, else "".

        Raises InvalidInput for a file that can't be read, or has no whole line: half an address is one too.
        """
        if self.rendezvous:
            return self.rendezvous
        try:
            with (self.data / _RENDEZVOUS).open(encoding="utf-8", errors="replace") as kept:
                text = kept.read(_LONGEST_ADDRESS)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise InvalidInput(f"{self.data / _RENDEZVOUS} can't be read: {error.strerror}") from None
        if not text.endswith("\n"):
            raise InvalidInput(f"{self.data / _RENDEZVOUS} is cut short: say `ollama session rendezvous set` again")
        return text.strip()


def size_bytes(variable: str, text: str) -> int:
    """A size as people write it, "200GB" or "1.5 TiB"; 0 for nothing. Raises InvalidInput for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if not text.strip():
        return 0
    if found is None:
        raise InvalidInput(f"{text[:40]!r} in {variable} is no size: write it as 200GB")
    return int(float(found["number"]) * _UNITS[found["unit"].upper()])


def default_data(environment: Mapping[str, str]) -> Path:
    """Where a sidecar keeps its things unless told: KAFILA_HOME, else ~/.kafila."""
    return Path(environment.get("KAFILA_HOME") or os.path.expanduser("~/.kafila"))
