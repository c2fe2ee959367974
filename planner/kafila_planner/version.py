"""Which planner this is: members only plan together if theirs have the same number."""

PLANNER_VERSION = 3
"""Raised whenever the same problem may give another plan, be it in the last digit of a figure or a word of a note.

The package's version says nothing about that. `tests/planner/frozen.json` holds the plans that belong to the number.
"""
