"""The architectures on offer: an allow-list of what tests/exact has shown to be exact.

The shard runs mlx-lm's own model code for any architecture, but a wrong rule gives wrong text and no error. So what
isn't here is refused before a weight is fetched.
"""

from collections.abc import Mapping

from kafila_sidecar.models.family import Family

FAMILIES: Mapping[str, Family] = {family.module: family for family in (Family("llama"), Family("qwen3"))}
