"""Two machines in this process, which know one rendezvous."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import serve
from kafila_sidecar.config import Config
from kafila_sidecar.machine.node import LocalNode, open_node


@asynccontextmanager
async def two_nodes(below: Path, **environment: str) -> AsyncIterator[tuple[LocalNode, LocalNode]]:
    """ada and bob, with their data below this folder."""
    async with AsyncExitStack() as stack:
        rendezvous = await stack.enter_async_context(serve(RendezvousConfig(port=0)))
        shared = {
            "KAFILA_RENDEZVOUS": f"grpc+insecure://127.0.0.1:{rendezvous.port}",
            "KAFILA_PORT_MAPPING": "0",
            "KAFILA_MDNS": "0",
            "HF_ENDPOINT": "http://127.0.0.1:9",
            **environment,
        }
        ada, bob = [
            await stack.enter_async_context(
                open_node(Config.read({**shared, "KAFILA_NAME": name}, socket_path=data / "s", data=data))
            )
            for name, data in (("ada", below / "ada"), ("bob", below / "bob"))
        ]
        yield ada, bob
