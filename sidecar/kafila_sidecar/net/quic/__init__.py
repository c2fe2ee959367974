"""One pinned QUIC connection without I/O: aioquic, bent where a ring of members needs something else."""
