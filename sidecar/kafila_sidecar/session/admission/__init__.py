"""How a newcomer proves the code and is let in: both sides of the exchange. No I/O, no clock."""
