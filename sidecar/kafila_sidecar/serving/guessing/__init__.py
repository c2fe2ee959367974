"""Several tokens a circuit: what is guessed, how much of it pays, and what it may cost. Pure: no clock, no task."""
