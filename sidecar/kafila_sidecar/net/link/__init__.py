"""Links to neighbours: checks that find a path, the connection on it, and its streams."""
