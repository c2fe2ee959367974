"""A request before its turn: what is refused of it, its prompt as token ids, its share of the head, all its runs."""
