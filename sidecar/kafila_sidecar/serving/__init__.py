"""Answers: the head's engine, every other stage's worker, the ring between them, traces."""
