"""What an answer may be: JSON of a schema, held to token by token by llguidance, without MLX."""
