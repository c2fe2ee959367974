"""Dividing the blocks among members in a given ring."""
