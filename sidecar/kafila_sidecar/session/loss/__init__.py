"""What the loss of a member means: who takes over what, and how the session would go on without each."""
