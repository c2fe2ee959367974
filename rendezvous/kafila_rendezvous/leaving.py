"""How a process ends in which libraries' own threads run."""

import contextlib
import logging
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Ends this process with that exit status, once all is closed that must be: what was logged and printed is written,
    and nothing else runs.

    Python would take itself down piece by piece, and end every thread that wants to run Python meanwhile. In the C++ of
    gRPC and MLX such an end is a crash ("terminate called without an active exception"), at the very end of a process
    that had ended well.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it any more, or it was closed
            stream.flush()
    os._exit(status)
