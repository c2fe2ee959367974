"""What the environment says of the model host, by the names and rules of the Hub's own tools."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.weights.providers.hub import Hub

DEFAULT_ENDPOINT = "https://huggingface.co"
TRUE = {"1", "on", "yes", "true"}
LARGEST_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HubSettings:
    """`cache` is the Hub library's own, which is read and never written to. `problem`: why there is no host to ask."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    cache: Path | None = None
    certificates: Path | None = None
    offline: bool = False
    problem: str = ""

    def hub(self) -> Hub:
        """The model host to ask. Raises InvalidInput for settings that make no sense, which need not stop the rest."""
        if self.problem:
            raise InvalidInput(self.problem)
        return Hub(endpoint=self.endpoint, token=self.token, certificates=self.certificates, offline=self.offline)


def read_settings(environment: Mapping[str, str]) -> HubSettings:
    """Never raises; a `problem` names the variable, and no secret."""
    home = hub_home(environment)
    host, shown, problem = DEFAULT_ENDPOINT, None, ""
    try:
        host, shown = endpoint(environment), token(environment, home)
    except InvalidInput as error:
        problem = str(error)
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    certificates = environment.get("SSL_CERT_FILE") or environment.get("SSL_CERT_DIR")
    return HubSettings(
        endpoint=host,
        token=shown,
        cache=expanded(cache, environment) if cache else home / "hub",
        certificates=Path(certificates) if certificates else None,
        offline=says_yes(environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE")),
        problem=problem,
    )


def hub_home(environment: Mapping[str, str]) -> Path:
    if told := environment.get("HF_HOME"):
        return expanded(told, environment)
    caches = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(caches, environment) / "huggingface"


def endpoint(environment: Mapping[str, str]) -> str:
    told = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).strip().rstrip("/")
    if not told.startswith(("https://", "http://")) or "@" in told or any(letter.isspace() for letter in told):
        raise InvalidInput("HF_ENDPOINT is no address of a model host: write it as https://host")
    return told


def token(environment: Mapping[str, str], home: Path) -> str | None:
    """That of HF_TOKEN, else of the file that logging in leaves. None where there is none, or its use is turned off."""
    if says_yes(environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if found := cleaned(environment.get(name, ""), name):
            return found
    told = environment.get("HF_TOKEN_PATH")
    path = expanded(told, environment) if told else home / "token"
    try:
        with path.open("r", encoding="utf-8") as file:
            return cleaned(file.read(LARGEST_TOKEN_BYTES), str(path))
    except (OSError, ValueError):
        return None


def cleaned(text: str, where: str) -> str | None:
    """Without the line ends that copying adds."""
    found = text.replace("\r", "").replace("\n", "").strip()
    if not all(33 <= ord(letter) < 127 for letter in found):
        raise InvalidInput(f"the token in {where} has letters that no token has: copy it again")
    return found or None


def says_yes(value: str | None) -> bool:
    return (value or "").strip().lower() in TRUE


def expanded(path: str, environment: Mapping[str, str]) -> Path:
    """With `~` and variables filled in."""
    if path.startswith("~/") or path == "~":
        path = (environment.get("HOME") or str(Path.home())) + path[1:]
    return Path(os.path.expandvars(path))
