"""What only the host has: whom it believes, when it plans, with whom, and for how long it waits."""
