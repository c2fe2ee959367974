"""The planner's one error. A problem that has no plan is not an error: see `types.Refusal`."""

from typing import ClassVar


class BadProblem(Exception):
    """The problem is malformed. The message is one sentence that names the field and the member, if there is one."""

    code: ClassVar[str] = "INVALID_ARGUMENT"
