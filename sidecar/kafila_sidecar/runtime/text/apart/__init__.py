"""A session's prompts in a process of their own, since a checkpoint's template or expressions may run without end."""
