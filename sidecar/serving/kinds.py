"""What a stream on a link carries: the byte that its opener gives it. RING.md lists them."""

ACTIVATIONS = 1  # frames to the next stage, for one epoch after another
REQUEST = 2  # one request from a member to the head, and its answer
CONTROL = 3  # sealed control messages, as in the mailboxes
