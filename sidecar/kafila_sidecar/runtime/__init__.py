"""MLX on its one thread, and how much memory it may take."""
