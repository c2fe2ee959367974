"""What runs here: for `--version`, and for whoever this machine meets. Nothing here imports MLX."""

from importlib import metadata

from kafila_planner.version import PLANNER_VERSION
from kafila_sidecar.session.admission.versions import Versions


def own_versions() -> Versions:
    """What members compare when one joins."""
    return Versions(metadata.version("kafila"), PLANNER_VERSION, metadata.version("mlx-lm"))


def versions() -> str:
    """Two lines: the package, then what members compare."""
    own = own_versions()
    return f"kafila {own.kafila}\nprotocol {own.protocols.newest}, planner {own.planner}, mlx-lm {own.mlx_lm}"
