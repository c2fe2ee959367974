"""Downloading the byte ranges that a stage needs, and nothing else."""
