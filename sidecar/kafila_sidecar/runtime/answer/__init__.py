"""What an answer says: thoughts, content and calls of tools, told apart as the checkpoint writes them, without MLX."""
