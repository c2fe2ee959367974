"""One member's part in a session, driven by what happens: the queue, the links, the jobs, and what people see."""
