"""A checkpoint: what it consists of, where it comes from, and the part of it on this disk."""
