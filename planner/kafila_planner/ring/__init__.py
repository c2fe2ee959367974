"""The order of the ring, and who is its head."""
