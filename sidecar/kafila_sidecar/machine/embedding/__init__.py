"""A rendezvous of this machine's own, in a process beside the sidecar."""
