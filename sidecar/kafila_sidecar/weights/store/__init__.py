"""Weights on disk: sparse files, and the journal of the bytes that are there."""
