"""Tries every architecture of mlx-lm, and writes the allow-list and docs/models.md from what it finds.

    python -m tests.exact.survey [MODULE …]

With names, those alone are tried and nothing is written.
"""

import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import mlx_lm
import mlx_lm.models
from mlx_lm.utils import MODEL_REMAPPING

from kafila_sidecar.models.family import Family, Together
from kafila_sidecar.runtime.mlx_thread import prefer_openblas
from tests.exact.candidates import FIRST, NO_FAMILY, REFUSED
from tests.exact.proof import STEPS, Proved, prove
from tests.exact.readers import keys_of

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "sidecar/kafila_sidecar/models"
OFFERED, READ_KEYS, PAGE = MODELS / "offered.py", MODELS / "read_keys.py", ROOT / "docs/models.md"
TRIED_WITH = mlx_lm.__version__


def candidates() -> list[str]:
    """All of mlx-lm's model files that are to be tried."""
    found = (one.name for one in pkgutil.iter_modules(mlx_lm.models.__path__))
    return sorted(name for name in found if name not in NO_FAMILY and name not in REFUSED)


def survey(modules: Sequence[str]) -> dict[str, Proved | str]:
    """A finding for each module; in words where there is none."""
    findings: dict[str, Proved | str] = {}
    for module in modules:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            findings[module] = _tried(module, Path(folder))
        print(f"{module:22} {_told(findings[module])} ({time.monotonic() - began:.1f} s)", flush=True)
    return findings


def _tried(module: str, folder: Path) -> Proved | str:
    try:
        return prove(module, folder / "model")
    except Exception as error:  # noqa: BLE001 - whatever it is, the architecture is not offered
        return f"it could not be tried: {type(error).__name__}: {error}"[:160]


def _told(finding: Proved | str) -> str:
    if isinstance(finding, str):
        return finding
    return f"wrong at {finding.wrong}" if finding.wrong else "exact"


def exact(findings: Mapping[str, Proved | str]) -> dict[str, Proved]:
    return {name: one for name, one in findings.items() if isinstance(one, Proved) and not one.wrong}


def offered_py(findings: Mapping[str, Proved | str]) -> str:
    lines = ",\n".join(f"        {_family(one.family)}" for one in exact(findings).values())
    aliases = {alias: module for alias, module in sorted(MODEL_REMAPPING.items()) if module in exact(findings)}
    return f'''"""The architectures on offer: an allow-list of what tests/exact has shown to be exact.

Written by `make models`. The shard runs mlx-lm's own model code for any architecture, but a wrong rule gives wrong text
and no error. So what isn't here is refused before a weight is fetched.
"""

from collections.abc import Mapping

from kafila_sidecar.models.family import Beside, Family, Spread, Together, Tying

SHOWN_WITH = "{TRIED_WITH}"
"""The version of mlx-lm whose code was tried."""

FAMILIES: Mapping[str, Family] = {{
    family.module: family
    for family in (
{lines},
    )
}}

ALIASES: Mapping[str, str] = {{
{"".join(f"    {alias!r}: {module!r},{chr(10)}" for alias, module in aliases.items())}}}
"""Other names in `model_type` for the same code."""
'''


def _family(family: Family) -> str:
    plain = Family(family.module)
    said = [repr(family.module)]
    for field in fields(family)[1:]:
        value = getattr(family, field.name)
        if value != getattr(plain, field.name):
            said.append(f"{field.name}={_literal(value)}")
    return f"Family({', '.join(said)})"


def _literal(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        inner = ", ".join(_literal(one) for one in value)
        return f"({inner}{',' if len(value) == 1 else ''})"
    if hasattr(value, "reach"):
        return f"Beside({value.parameter!r}, {_literal(value.reach)})"
    return repr(value)


def read_keys_py(findings: Mapping[str, Proved | str]) -> str:
    rows = []
    for module in exact(findings):
        outer, inner = keys_of(module)
        rows.append(f"    {module!r}: ({_words(outer)}, {_words(inner)}),\n")
    return f'''"""The configuration keys that architectures' code reads: beside `text_config`, and of the text model.

Written by `make models`; what is in neither has to be harmless, or the checkpoint is refused.
"""

from collections.abc import Mapping

READ_KEYS: Mapping[str, tuple[str, str]] = {{
{"".join(rows)}}}
'''


def _words(keys: Sequence[str]) -> str:
    lines, line = [], ""
    for key in keys:
        if len(line) + len(key) > 90:
            lines.append(line)
            line = ""
        line += f"{key} "
    return "(" + " ".join(repr(one) for one in [*lines, line.rstrip()]) + ")"


def page(findings: Mapping[str, Proved | str]) -> str:
    good = exact(findings)
    first = [name for name in FIRST if name in good]
    rest = [name for name in good if name not in FIRST]
    bad = {name: _told(one) for name, one in findings.items() if name not in good} | REFUSED
    return f"""# Models

Which architectures a session can run. Written by `make models`, which makes a tiny random model of each from mlx-lm
{TRIED_WITH}'s own configuration class, cuts it into one, two and three stages at several places, poisons all weights
that a stage must not read with NaN, and compares the logits with the whole model's, bit for bit: a prompt in two
chunks, then {STEPS} tokens. {len(good)} of {len(findings) + len(REFUSED)} model files are exact, and those alone are
offered.

- **name**: `model_type` in the checkpoint's `config.json`, and the other names that the same code answers to.
- **caches**: what a block keeps of a sequence. *kv* grows with the context, *window* stops at the sliding window,
  *state* has a fixed size. Only *kv* can forget: where a model has others too, guesses go round only together with the
  token that they follow, and what is to be forgotten comes back from a copy. Where values travel beside the hidden
  state, none are guessed.
- **together**: what of several sequences' tokens is computed in one run: *all but attention*, or *mostly the MLP* (what
  lies outside the modules that have a cache), or *nothing*. A row's logits are those of its sequence alone.
- **cuts**: blocks that share a cache or a value are on one stage. *with* says what travels beside the hidden state.
- **images**: only the text part is run. A family whose code in mlx-lm takes images answers text alone, and a request
  with an image is refused in a sentence.

## What people run

{_table(good, first)}
## The others

{_table(good, rest)}
## Not offered

| file of mlx-lm | why |
|---|---|
{"".join(f"| {name} | {why} |{chr(10)}" for name, why in sorted(bad.items()))}
## Weights

16 and 32 bits; MLX's affine 2 to 8 bits, with settings of their own for single layers; MXFP4, MXFP8 and NVFP4; FP8
where mlx-lm turns it into 16 bits while loading. GPTQ and AWQ are refused: look for an MLX conversion, as
mlx-community's.

The files decide: whether embedding and unembedding are one matrix, biases, sizes and element types follow from the
tensors that are there. Every key of `config.json` is read, or known to change nothing, or the checkpoint is refused
with the key's name. Repositories with pictures or sound load their text part.

Code in a repository is never read, fetched or run: of an architecture mlx-lm's own code is, so an `auto_map` in its
files is passed over. A tokenizer that is code alone, without a `tokenizer.json`, is refused. What NVIDIA's ModelOpt
says in `hf_quant_config.json` counts as if it stood in `config.json`.
"""


def _table(good: Mapping[str, Proved], names: Sequence[str]) -> str:
    rows = "".join(_row(name, good[name]) for name in names)
    return f"| name | caches | together | cuts |\n|---|---|---|---|\n{rows}"


def _row(name: str, finding: Proved) -> str:
    family = finding.family
    also = [alias for alias, module in sorted(MODEL_REMAPPING.items()) if module == name]
    named = f"{name} ({', '.join(also)})" if also else name
    cuts = "some blocks together" if finding.uncuttable else "anywhere"
    if family.beside:
        cuts += f", with {', '.join(one.parameter for one in family.beside)}"
    caches = ", ".join(dict.fromkeys(CACHE_WORDS[kind] for kind in family.caches))
    return f"| {named} | {caches} | {TOGETHER_WORDS[family.together]} | {cuts} |\n"


CACHE_WORDS = {
    **{"KVCache": "kv", "RotatingKVCache": "window", "ChunkedKVCache": "window", "ArraysCache": "state"},
    "CacheList": "several",
}
TOGETHER_WORDS = {
    Together.BUT_ATTENTION: "all but attention",
    Together.BESIDE_CACHE: "mostly the MLP",
    Together.NOTHING: "nothing",
}


def main() -> None:
    prefer_openblas()
    named = sys.argv[1:]
    findings = survey(named or candidates())
    if not named:
        OFFERED.write_text(offered_py(findings))
        READ_KEYS.write_text(read_keys_py(findings))
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(OFFERED), str(READ_KEYS)], check=True)
        PAGE.write_text(page(findings))
    raise SystemExit(len(findings) - len(exact(findings)))


if __name__ == "__main__":
    main()
