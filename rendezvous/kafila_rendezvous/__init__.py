"""The rendezvous: introduces members by room number, carries their first messages, and knows nothing else."""
