"""What goes from stage to stage: frames as bytes, and the one stream that they take to the next stage."""
