"""What is kept on this disk of a session that this machine is in, so that it can come back."""
