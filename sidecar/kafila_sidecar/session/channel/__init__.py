"""Control messages between members, whichever way they come: sealed, each delivered once."""
