"""Sequences that outlive their answers, so that a conversation's next turn prefills only what is new. Pure."""
