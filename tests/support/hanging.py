"""Work that stands still on a model's thread, as for a device or a disk that does not answer."""

import threading


class Hang:
    """Lasts until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.runs = threading.Event()

    def __call__(self) -> None:
        self.runs.set()
        assert self.may_end.wait(60)
