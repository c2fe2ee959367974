"""Answers: requests that outlive an epoch; of each epoch the head's engine, the others' workers, the ring; traces."""
