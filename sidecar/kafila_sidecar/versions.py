"""What runs here, in the words of `--version`."""

from importlib import metadata

import kafila_planner
from kafila_sidecar.session.admission.pake import PROTOCOL


def versions() -> str:
    """Two lines: the package, then what members compare when one joins. Nothing here imports MLX."""
    planner = getattr(kafila_planner, "PLANNER_VERSION", "unnumbered")
    members_compare = f"protocol {PROTOCOL}, planner {planner}, mlx-lm {metadata.version('mlx-lm')}"
    return f"kafila {metadata.version('kafila')}\n{members_compare}"
