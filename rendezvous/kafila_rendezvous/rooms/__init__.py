"""Rooms and their mailboxes, without I/O and without a clock."""
