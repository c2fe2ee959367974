"""What the network around this machine does: its NAT, where it is seen from, and how to say so."""
