"""Judging others fairly: who is heard, who can't be reached by whom, and when one's own machine was asleep. Pure."""
