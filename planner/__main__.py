"""`kafila-plan [FILE]`: a problem as JSON in, a plan as JSON out.

Exit status: 0 with a plan, 3 when not admitted (JSON as well), 2 for bad input (a sentence on stderr, no output).
"""

import argparse
import json
import sys

from planner.codec import problem_from_json
from planner.encode import plan_to_json
from planner.errors import BadProblem
from planner.plan import make_plan
from planner.types import Refusal

BAD_INPUT = 2
NOT_ADMITTED = 3


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kafila-plan", description="Plan a session: problem in, plan out, as JSON.")
    parser.add_argument("file", nargs="?", default="-", help="the problem; standard input by default")
    try:
        problem = problem_from_json(_read(parser.parse_args(argv).file))
    except BadProblem as fault:
        print(f"kafila-plan: {fault}", file=sys.stderr)
        return BAD_INPUT
    result = make_plan(problem)
    print(json.dumps(plan_to_json(result), indent=2, allow_nan=False))
    return NOT_ADMITTED if isinstance(result, Refusal) else 0


def _read(file: str) -> object:
    try:
        if file == "-":
            return json.load(sys.stdin)
        with open(file, encoding="utf-8") as opened:
            return json.load(opened)
    except OSError as fault:
        raise BadProblem(f"the file {file!r} can't be read: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise BadProblem(f"the problem is no JSON: {fault}") from fault


if __name__ == "__main__":
    sys.exit(main())
