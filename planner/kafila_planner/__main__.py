"""`kafila-plan [FILE]`: a problem as JSON in, a plan as JSON out.

Exit status: 0 with a plan, 3 when not admitted (JSON as well), 2 for bad input (a sentence on stderr, no output).
"""

import argparse
import json
import sys
from importlib import metadata

from kafila_planner.errors import BadProblem
from kafila_planner.json.decode_problem import problem_from_json
from kafila_planner.json.encode import plan_to_json
from kafila_planner.model.types import Refusal
from kafila_planner.plan import make_plan
from kafila_planner.version import PLANNER_VERSION

BAD_INPUT = 2
NOT_ADMITTED = 3
LONGEST_NUMBER = 300  # digits

HELP = """\
sizes are in bytes, times in seconds, rates in bytes a second; docs/planner.md has every field.

exit status: 0 with a plan; 3 when the model is not admitted, with the reason as JSON; 2 for bad input, with a
sentence on standard error.

example:
  echo '{"model": {"blocks": 2, "block_bytes": 1e9, "embed_bytes": 1e8, "unembed_bytes": 1e8,
                   "kv_bytes_per_token_per_block": 4096},
         "members": [{"name": "desk", "nat": "ordinary", "rtt_s": 0.02, "overhead_s": 5e-5,
                      "bandwidth_bytes_per_s": 5e10, "memory_bytes": 8e9}]}' | kafila-plan
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="kafila-plan",
        description="Plan a session: problem in, plan out, as JSON.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", default="-", help="the problem; standard input by default")
    parser.add_argument("--version", action="store_true", help="say which version this is, and of which planner")
    asked = parser.parse_args(argv)
    if asked.version:
        print(f"kafila-plan {_package_version()}, planner {PLANNER_VERSION}")
        return 0
    try:
        problem = problem_from_json(_read(asked.file))
    except BadProblem as fault:
        print(f"kafila-plan: {fault}", file=sys.stderr)
        return BAD_INPUT
    result = make_plan(problem)
    try:
        print(json.dumps(plan_to_json(result), indent=2, allow_nan=False), flush=True)
    except OSError as fault:
        print(f"kafila-plan: the plan can't be written: {fault.strerror}", file=sys.stderr)
        return BAD_INPUT
    return NOT_ADMITTED if isinstance(result, Refusal) else 0


def _package_version() -> str:
    try:
        return metadata.version("kafila")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _read(file: str) -> object:
    try:
        if file != "-":
            with open(file, encoding="utf-8") as opened:
                return json.load(opened, parse_int=_whole)
        if sys.stdin is None:
            raise BadProblem("standard input is closed: name a file")
        return json.load(sys.stdin, parse_int=_whole)
    except OSError as fault:
        raise BadProblem(f"the file {file!r} can't be read: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise BadProblem(f"the problem is no JSON: {fault}") from fault


def _whole(digits: str) -> int | float:
    """Python refuses to read very long ones; whoever wants a number refuses infinity by its field's name."""
    return int(digits) if len(digits) <= LONGEST_NUMBER else float("inf")


if __name__ == "__main__":
    sys.exit(main())
