"""A layout told as a plan: stages, figures, who is idle and why, what would be admitted instead."""
