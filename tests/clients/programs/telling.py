"""What every program here does: run its cases against one server and model, and print what each gave as JSON.

    python telling.py PROGRAM URL MODEL [MODEL ...]

runs a program for one model after another: most of a short program's time goes into the import of its package.
"""

import asyncio
import inspect
import json
import runpy
import sys
from collections.abc import Callable, Mapping
from typing import Any

Case = Callable[[], Any]


def tell(cases: Mapping[str, Case]) -> None:
    """Prints one object, by the cases' names. A case that the server refuses gives the
    error's kind and status."""
    print(json.dumps({name: _outcome(case) for name, case in cases.items()}, default=_plain))


def arguments() -> tuple[str, str]:
    """The server's URL and the model's name."""
    return sys.argv[1], sys.argv[2]


def _outcome(case: Case) -> Any:
    try:
        made = case()
        return asyncio.run(made) if inspect.iscoroutine(made) else made
    except Exception as error:
        status = getattr(error, "status_code", None)
        if status is None:
            raise  # no answer of the server's: the case itself is wrong
        return {"raised": type(error).__name__, "status": status, "sentence": str(error)}


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else str(value)


if __name__ == "__main__":
    _, program, url, *models = sys.argv
    for model in models:
        sys.argv = [program, url, model]
        runpy.run_path(program, run_name="__main__")
