"""Subset, order, head and division together: exact within a counted budget, a heuristic beyond."""
