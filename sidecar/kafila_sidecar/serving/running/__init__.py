"""What the head does for a request whose turn has come, and what its own shard does for all of them."""
