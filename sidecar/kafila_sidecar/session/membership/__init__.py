"""Who belongs to a session, and the keys and signatures that prove it. No I/O, no clock."""
