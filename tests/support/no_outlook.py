"""What stands beside a session where nobody looks ahead."""

from kafila_proto import sidecar_pb2 as pb


class NoOutlook:
    """Expects nothing, and fetches nothing for it."""

    async def run(self) -> None: ...
    def show(self, session: pb.Session) -> None: ...
