"""A part of a model: mlx-lm's own code with the blocks of other stages taken out."""
