"""A model whose every token is a hash of all that it was fed, block by block, and what loads and runs it.

Block b keeps k_b, and turns x at position p into k_b := H(b, k_b, x, p). The head picks H(last block's k) for the next
token. However the blocks are divided, the text is the same; a token lost, doubled or out of order in any block's cache
gives another one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any, cast

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, NotFound, Unavailable
from kafila_sidecar.runtime.shard.finite import TokenLayout, check_state
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.picking import Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.decoding import Decoding
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from tests.sim.clock import SimLoop

BLOCKS = 8
VOCABULARY = 97
END = 0
BLOCK_BYTES = 100_000_000
CONTEXT = 128
CONCURRENCY = 2
BLOCK_S = 0.01  # a token through a block, on the quickest machine
CALL_S = 0.0005  # what a call takes besides
CHUNK_TOKENS = 8
EMBED_BYTES = 50_000_000  # and as many to pick a token
NORM_BYTES = 4096
KV_BYTES = 4096  # of a token in a block
MODEL = {
    "blocks": BLOCKS,
    "block_bytes": BLOCK_BYTES,
    "embed_bytes": EMBED_BYTES,
    "unembed_bytes": EMBED_BYTES,
    "norm_bytes": NORM_BYTES,
    "tied": False,
    "kv_bytes_per_token_per_block": KV_BYTES,
}
BLOCK_HELD_BYTES = BLOCK_BYTES + KV_BYTES * CONTEXT * CONCURRENCY
HEAD_HELD_BYTES = 2 * EMBED_BYTES + NORM_BYTES
TERMS = PlanningTerms(members_wanted=0, model=MODEL, context_tokens=CONTEXT, concurrency=CONCURRENCY)
WIDTH = 4  # elements of a token's state
_MASK = (1 << 64) - 1


def _mix(*parts: int) -> int:
    return hash(parts) & _MASK


def _written(xs: Sequence[int]) -> bytes:
    """Numbers of 64 bits as finite float32, 16 bits in each."""
    parts = [float(x >> shift & 0xFFFF) for x in xs for shift in (0, 16, 32, 48)]
    return pack(f"<{len(parts)}f", *parts)


def _read(payload: bytes | memoryview) -> list[int]:
    parts = [int(part) for part in unpack(f"<{len(payload) // 4}f", payload)]
    return [
        parts[i] | parts[i + 1] << 16 | parts[i + 2] << 32 | parts[i + 3] << 48 for i in range(0, len(parts), WIDTH)
    ]


def can_hold(memories: Sequence[int]) -> bool:
    """Whether machines with so many bytes each have room for the model, and one of them for the head besides."""
    rooms = [memory // BLOCK_HELD_BYTES for memory in memories]
    as_head = [(memory - HEAD_HELD_BYTES) // BLOCK_HELD_BYTES for memory in memories]
    return any(head >= 0 and sum(rooms) - room + head >= BLOCKS for room, head in zip(rooms, as_head, strict=True))


@lru_cache(maxsize=4096)
def right_answer(prompt: tuple[int, ...], most: int) -> tuple[int, ...]:
    """What the whole model says."""
    caches, position, answer = [0] * BLOCKS, 0, list[int]()
    fed: Sequence[int] = prompt
    while True:
        for token in fed:
            x = _mix(token, position)
            for block in range(BLOCKS):
                x = caches[block] = _mix(block, caches[block], x, position)
            position += 1
        answer.append(_mix(x) % VOCABULARY)
        if answer[-1] == END or len(answer) >= most or len(prompt) + len(answer) >= CONTEXT:
            return tuple(answer)
        fed = answer[-1:]


class HashShard:
    """The blocks [start, end); as `Shard`."""

    entry = last = TokenLayout(WIDTH, WIDTH)
    takes_rows = True
    can_rewind = all_rewind = model_can_forget = runs_ahead = False
    step_limits = StepLimits()

    def __init__(self, start: int, end: int, worked: Callable[[int], None] = lambda _: None) -> None:
        """`worked` hears how many tokens went through a block."""
        self.start, self.end = start, end
        self._worked = worked
        self.weight_bytes = (end - start) * BLOCK_BYTES
        self._at: dict[int, tuple[int, list[int]]] = {}  # sequence -> position, the blocks' caches

    hands_over = False

    def embed_and_blocks(self, sequence: int, tokens: Sequence[int]) -> HiddenState:
        position, _ = self._at.setdefault(sequence, (0, [0] * (self.end - self.start)))
        return self._through(sequence, position, [_mix(token, position + i) for i, token in enumerate(tokens)])

    def run_blocks(self, sequence: int, state: HiddenState) -> HiddenState:
        if state.position == 0:
            self._at.setdefault(sequence, (0, [0] * (self.end - self.start)))
        if sequence not in self._at:
            raise NotFound(f"sequence {sequence} is not known here")
        if self._at[sequence][0] != state.position:
            raise InvalidInput(f"a state at {state.position} came to a sequence at {self._at[sequence][0]}")
        return self._through(sequence, state.position, _read(state.payload))

    def check_next(self, sequence: int, state: HiddenState) -> None:
        if self.position(sequence) != state.position:
            raise InvalidInput(f"a state at {state.position} came to a sequence at {self.position(sequence)}")
        check_state(state, self.entry)

    def absorb(self, sequence: int, state: HiddenState) -> None:
        self.run_blocks(sequence, state)

    def run_rows(self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool = False) -> list[HiddenState]:
        assert not has_guesses
        return [self.run_blocks(*row) for row in rows]

    def pick(self, rows: Sequence[Pick]) -> list[Picked]:
        picked = []
        for row in rows:
            token = _mix(_read(row.state.payload)[-1]) % VOCABULARY
            row.sampler.take(token)
            state = self.embed_and_blocks(row.sequence, [token]) if row.goes_on else None
            picked.append(Picked(token, state))
        return picked

    def learn_steps(self, before: object) -> None:
        """A step has one token."""

    def build_steps(self, rows: Sequence[tuple[int, int]], like: HiddenState) -> None:
        """There is nothing to build ahead."""

    def build_pick(self, rows: Sequence[Pick]) -> None:
        """Nor here."""

    def position(self, sequence: int) -> int:
        return self._at[sequence][0] if sequence in self._at else 0

    def release(self, sequence: int) -> None:
        self._at.pop(sequence, None)

    @property
    def active(self) -> int:
        return len(self._at)

    def close(self) -> None:
        self._at.clear()

    def _through(self, sequence: int, position: int, xs: Sequence[int]) -> HiddenState:
        caches, out = self._at[sequence][1], []
        for i, x in enumerate(xs):
            for at in range(self.end - self.start):
                x = caches[at] = _mix(self.start + at, caches[at], x, position + i)
            out.append(x)
        self._at[sequence] = (position + len(xs), caches)
        self._worked(len(xs) * (self.end - self.start))
        return HiddenState(_written(out), "float32", (1, len(out), WIDTH), position)


def load_shard(*, start: int, end: int, worked: Callable[[int], None], before: Any = None, **_: Any) -> Shard:
    """As `Shard.load`."""
    if before is not None:
        before.close()
    return cast(Shard, HashShard(start, end, worked))


def _text_of(token: int) -> str:
    return "" if token == END else f"{token} "


NUMBERS = Vocabulary(
    size=VOCABULARY,
    gaps=(),
    eos_ids=frozenset((END,)),
    generation_config={},
    decoding=Decoding(_text_of, ()),
)
"""A token is its number and a space."""


class NumberPrompts:
    """As `TextProcess`: a prompt is numbers."""

    def __init__(self, folder: Path) -> None: ...

    async def vocabulary(self) -> Vocabulary:
        await asyncio.sleep(0.0005)
        return NUMBERS

    async def ids(self, prompt: str, **_: Any) -> list[int]:
        await asyncio.sleep(0.0005)
        return [int(word) for word in prompt.split()]

    async def calls(self, text: str, *, reader: str, prompt: str) -> list[dict[str, Any]]:
        return []

    def kill(self) -> None: ...

    async def close(self) -> None: ...


class SimThread:
    """As `MlxThread`: one call after another, each for the time that it would take, a machine's own.

    What a call does is done when it begins, and its caller hears of it when it is over.
    """

    def __init__(self, loop: SimLoop, slowness: float) -> None:
        self._loop = loop
        self._slowness = slowness
        self._waiting = deque[tuple[asyncio.Future[Any], partial[Any]]]()

    async def run(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await self.start(call, *arguments, **named)

    def when_idle(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None: ...

    def start(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> "asyncio.Future[Any]":
        outcome = self._loop.create_future()
        self._waiting.append((outcome, partial(call, *arguments, **named)))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)
        return outcome

    def worked(self, tokens: int) -> None:
        """Of the call that is under way: so many tokens went through a block."""
        self._loop.ahead_s += self._slowness * BLOCK_S * tokens

    def _next(self) -> None:
        outcome, call = self._waiting[0]
        if outcome.cancelled():
            self._done(outcome, None, None)  # it had not begun
            return
        result, error = None, None
        try:
            result = SimpleNamespace() if call.func is Sampler else call()
        except Exception as raised:  # noqa: BLE001  # the caller gets it
            error = raised
        took_s, self._loop.ahead_s = CALL_S + self._loop.ahead_s, 0.0
        self._loop.call_later(took_s, self._done, outcome, result, error)

    def _done(self, outcome: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._next)
        if outcome.cancelled():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)


class Disk:
    """What of the model a machine has; it outlives its process."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.files: dict[str, bytes] = {}


class SimModelHost:
    """Where weights come from."""

    def __init__(self, loop: SimLoop) -> None:
        self.is_up = True
        self._loop = loop
        self._back = asyncio.Event()

    def raise_up(self, up: bool) -> None:
        self.is_up = up
        if up:
            self._back.set()
            self._back = asyncio.Event()

    async def until_back(self) -> None:
        while not self.is_up:
            await self._back.wait()


class SimWeights:
    """As `SessionWeights`, for a stage and a driver: parts of the model come from its host, or are on the disk."""

    small_files = Path("model")
    checkpoint = SimpleNamespace(
        anatomy=SimpleNamespace(notices=()),
        config={},
        parameters=1,
        quantization="F32",
        generation_config={},
        small_files=small_files,
        weight_bytes=BLOCKS * BLOCK_BYTES,
        gap=None,
    )

    def __init__(self, disk: Disk, host: SimModelHost, bytes_per_s: float) -> None:
        self._disk = disk
        self._host = host
        self._bytes_per_s = bytes_per_s

    @contextmanager
    def in_use(self) -> Iterator[None]:
        yield

    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]:
        return frozenset([f"block {i}" for i in range(start, end)] + (["head"] if head else []))

    async def fetch(self, names: Iterable[str], *, progress: Any = None, waiting: Any = None) -> None:
        wanted = sorted(names)
        missing = [name for name in wanted if name not in self._disk.names]
        for count, name in enumerate(missing, start=len(wanted) - len(missing)):
            progress(count * BLOCK_BYTES, len(wanted) * BLOCK_BYTES)
            await self._until_there(waiting)
            await asyncio.sleep(BLOCK_BYTES / self._bytes_per_s)
            self._disk.names.add(name)
        progress(len(wanted) * BLOCK_BYTES, len(wanted) * BLOCK_BYTES)

    async def _until_there(self, waiting: Any) -> None:
        pause_s, waited_s = 0.5, 0.0
        while not self._host.is_up:
            if waited_s > 600:
                raise Unavailable("the model's host does not answer: try again later")
            waiting("waits for the model's host")
            try:
                async with asyncio.timeout(pause_s):
                    await self._host.until_back()
            except TimeoutError:
                waited_s, pause_s = waited_s + pause_s, min(30.0, 2 * pause_s)
        waiting("")

    def download_bytes(self, names: Iterable[str]) -> int:
        return BLOCK_BYTES * sum(name not in self._disk.names for name in names)

    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]:
        return {}

    def holds(self) -> ring_pb2.Holds | None:
        return None

    def learn(self, member: str, held: Any) -> None: ...

    def members(self, names: Any) -> None: ...

    async def answer(self, stream: Any) -> None: ...
