"""What is wrong with JSON that the planner can't read. A problem without a plan is no error: see `types.Refusal`."""


class BadInput(Exception):
    """The JSON is not what it should be. The message is one sentence that names the field and whose it is."""


class BadProblem(BadInput):
    """The problem is malformed."""


class BadPlan(BadInput):
    """The plan, or the refusal, is malformed, or is one that no planner makes."""
