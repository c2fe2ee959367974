"""Members of one session on loopback: real links, real stores, a model host that counts, and no planner."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.session.coordination import messages
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.session.membership.identity import make_identity
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.sharing.courtesy import Courtesy
from kafila_sidecar.sharing.holdings import tell
from kafila_sidecar.sharing.lending import Lender
from kafila_sidecar.sharing.sources import Sources
from kafila_sidecar.sharing.vouching import Vouchers
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.fetching.transfer import Patience
from kafila_sidecar.weights.providers.hub import Hub
from tests.sidecar.net.people import KEY, SESSION
from tests.support.model_host import ModelHost

REPO = "kafila/model"
WEIGHTS = ".safetensors"
QUICK = Patience(tries=3, first_wait_s=0.001, longest_s=0.004)


class LabMember:
    """One member with its disk. `draws`: whom it said that it takes from."""

    def __init__(self, name: str, place: int, checkpoint: Checkpoint, others: list[Member]) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.identity = make_identity()
        self.member = Member(
            name, self.identity.der, self.identity.fingerprint, self.identity.agreement, place + 1, place
        )
        others.append(self.member)
        self.endpoint = Endpoint.open(host="127.0.0.1")
        self.standing = StandingLinks()
        self.draws: list[list[str]] = []
        self.vouchers = Vouchers(
            identity=self.identity, name=name, revision=checkpoint.revision, members=lambda: others
        )
        self.sources = Sources(
            revision=checkpoint.revision,
            vouchers=self.vouchers,
            standing=self.standing,
            draw_from=self._draw_from,
            link_s=0.3,
        )
        self.lender = Lender(checkpoint=lambda: self.checkpoint, vouchers=self.vouchers, courtesy=Courtesy(lambda: 1e9))

    @property
    def everything(self) -> frozenset[str]:
        return self.checkpoint.shard(start=0, end=4, head=True)

    def blocks(self, start: int, end: int) -> frozenset[str]:
        return self.checkpoint.shard(start=start, end=end, head=False)

    async def fetch(self, names: Iterable[str]) -> list[str]:
        """Of members first; what was said of waiting."""
        said: list[str] = []
        await self.checkpoint.fetch(names, members=self.sources, waiting=said.append)
        return [sentence for sentence in said if sentence]

    def hears_of(self, *others: "LabMember") -> None:
        """What the others tell that they hold, as it travels."""
        for other in others:
            held = tell(other.checkpoint.held, sorted(other.checkpoint.manifest.files))
            self.sources.learn(other.name, messages.read_holds(held).held)

    async def dial(self, peer: "LabMember") -> Link:
        return await self.endpoint.connect(
            session=SESSION,
            key=KEY,
            me=self.identity,
            peer_name=peer.name,
            peer_fingerprint=peer.identity.fingerprint,
            candidates=peer.endpoint.candidates(),
            deadline_s=10.0,
            on_stream=self.on_stream,
        )

    async def on_stream(self, stream: Stream) -> None:
        await self.lender.answer(stream)

    def _draw_from(self, sources: Iterable[str]) -> None:
        self.draws.append(sorted(sources))


async def link(stack: AsyncExitStack, one: LabMember, other: LabMember) -> None:
    """A link between two, until the stack ends."""
    ours, theirs = await asyncio.gather(one.dial(other), other.dial(one))
    stack.enter_context(one.standing.standing(other.name, ours))
    stack.enter_context(other.standing.standing(one.name, theirs))


@asynccontextmanager
async def lab(host: ModelHost, below: Path, *names: str, linked: bool = True) -> AsyncIterator[list[LabMember]]:
    """Members with empty disks that know the checkpoint, each linked to each."""
    members: list[Member] = []
    made: list[LabMember] = []
    async with AsyncExitStack() as stack:
        for place, name in enumerate(names):
            hub = Hub(endpoint=host.endpoint)
            checkpoint = await open_checkpoint(REPO, hub=hub, cache=below / name, patience=QUICK)
            made.append(LabMember(name, place, checkpoint, members))
            stack.push_async_callback(made[-1].endpoint.close)
        for place, one in enumerate(made if linked else []):
            for other in made[place + 1 :]:
                await link(stack, one, other)
        yield made


def true_to(folder: Path, member: LabMember, names: frozenset[str]) -> bool:
    """Whether the bytes of `names` on the member's disk are those of the original files."""
    files = member.checkpoint.files_for(names)
    tensors = [(path, member.checkpoint.manifest.tensors[name]) for path, held in files.items() for name in held]
    return all(
        path.read_bytes()[tensor.start : tensor.end] == (folder / tensor.file).read_bytes()[tensor.start : tensor.end]
        for path, tensor in tensors
    )
