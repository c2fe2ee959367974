"""A draft model: a small one on the head that guesses what the session's own will say. It is fetched and held there
alone, and what it guesses counts only where the session's model picks it anyway."""
