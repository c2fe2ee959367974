"""A ring of stages without a model: each adds one to every byte of the state, and keeps who is where."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from kafila_sidecar.errors import InvalidInput, KafilaError, NotFound
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.finite import NotFinite, TokenLayout, check_state
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.frames.hop import SEND_DEADLINE_S, HopSender
from kafila_sidecar.serving.ring import DECODE_DEADLINE_S, Ring
from kafila_sidecar.serving.worker import Bounds, Rows, Worker
from tests.sidecar.serving.streams import OnStream, StreamWire

T = TypeVar("T")

EPOCH = 3
WIDTH = 4
HEAD = "head"
LAYOUT = TokenLayout(WIDTH, WIDTH)
BOUNDS = Bounds(sequences=4, tokens=64, chunk_tokens=32)


class PlainShard:
    """What a worker needs of a Shard, with the same rules about positions."""

    def __init__(self) -> None:
        self.can_rewind = True
        self.step_limits = StepLimits(exact=8, bounded=8, rows=8)
        self.at: dict[int, int] = {}
        self.absorbed: list[int] = []
        self.most_rows = 0  # in one run
        self.runs_of_rows = 0
        self.runs = 0
        self.fails: Exception | None = None

    hands_over = False
    entry = LAYOUT

    def check_next(self, sequence: int, state: HiddenState) -> None:
        stands_at = self.at.get(sequence, 0)
        if stands_at != state.position and not (self.can_rewind and 0 < state.position < stands_at):
            raise InvalidInput("a frame is missing")
        check_state(state, self.entry)

    def run_blocks(self, sequence: int, state: HiddenState) -> HiddenState:
        if self.fails is not None:
            raise self.fails
        known = self.at.setdefault(sequence, 0) if state.position == 0 else self.at.get(sequence)
        if known is None:
            raise NotFound(f"sequence {sequence} is not known here")
        if known < state.position:
            raise InvalidInput("a frame is missing")
        self.at[sequence] = state.position + state.tokens
        self.runs += 1
        return HiddenState(bytes((byte + 1) % 256 for byte in state.payload), state.dtype, state.shape, state.position)

    def run_rows(
        self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool = False
    ) -> list[HiddenState | NotFinite]:
        assert not has_guesses or all(state.tokens > 1 for _, state in rows)
        self.most_rows = max(self.most_rows, len(rows))
        self.runs_of_rows += 1
        return [self._row(*row) for row in rows]

    def _row(self, sequence: int, state: HiddenState) -> HiddenState | NotFinite:
        try:
            return self.run_blocks(sequence, state)
        except NotFinite as error:
            return error

    def absorb(self, sequence: int, state: HiddenState) -> None:
        self.run_blocks(sequence, state)
        self.absorbed.append(sequence)

    def build_steps(self, rows: Sequence[tuple[int, int]], like: HiddenState) -> None: ...

    def release(self, sequence: int) -> None:
        self.at.pop(sequence, None)


class PlainThread:
    """Calls run in order, each a turn of the loop later."""

    def start(self, call: Callable[..., T], *arguments: Any, **named: Any) -> "asyncio.Future[T]":
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._answer, outcome, partial(call, *arguments, **named))
        return outcome

    def when_idle(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None: ...

    def _answer(self, outcome: "asyncio.Future[T]", call: Callable[[], T]) -> None:
        if outcome.cancelled():
            return
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001  # the caller gets it
            outcome.set_exception(error)


def at_most_three(users: int) -> int:
    return min(users, 3)


def worker(
    shard: PlainShard, hop: HopSender, *, place: int, is_last: bool, bounds: Bounds = BOUNDS, rows: Rows = at_most_three
) -> Worker:
    return Worker(
        epoch=EPOCH,
        place=place,
        shard=cast(Shard, shard),
        mlx=cast(MlxThread, PlainThread()),
        hop=hop,
        is_last=is_last,
        bounds=bounds,
        rows=rows,
    )


class Round:
    """A head and `workers` stages in memory: wires[i] leads from stage i to the next, the last one back to the head."""

    def __init__(
        self,
        workers: int = 2,
        bounds: Bounds = BOUNDS,
        *,
        decode_deadline_s: float = DECODE_DEADLINE_S,
        send_deadline_s: float = SEND_DEADLINE_S,
        rows: Rows = at_most_three,
    ) -> None:
        names = [HEAD, *(f"w{i}" for i in range(1, workers + 1))]
        self.errors: list[BaseException] = []
        self.wires = [
            StreamWire(here, there, self._noting(self._takes(i + 1)))
            for i, (here, there) in enumerate(zip(names, [*names[1:], HEAD], strict=True))
        ]
        hops = [
            HopSender(peer=there, open_stream=self.wires[i].open, deadline_s=send_deadline_s)
            for i, there in enumerate([*names[1:], HEAD])
        ]
        self.shards = [PlainShard() for _ in range(workers)]
        self.workers = [
            worker(shard, hops[i + 1], place=i + 1, is_last=i == workers - 1, bounds=bounds, rows=rows)
            for i, shard in enumerate(self.shards)
        ]
        self.ring = Ring(
            epoch=EPOCH,
            hop=hops[0],
            order=names,
            last=LAYOUT,
            limits=StepLimits(exact=8, bounded=8, rows=8),
            chunk_tokens=bounds.chunk_tokens,
            decode_deadline_s=decode_deadline_s,
        )

    def _takes(self, index: int) -> OnStream:
        async def serve(stream: Stream) -> None:
            taker = self.ring if index > len(self.workers) else self.workers[index - 1]
            await taker.take_frames(stream)

        return serve

    def _noting(self, serve: OnStream) -> OnStream:
        async def noted(stream: Stream) -> None:
            try:
                await serve(stream)
            except KafilaError as error:
                self.errors.append(error)

        return noted

    async def token(self, sequence: int, position: int, value: int = 0, tokens: int = 1) -> int:
        """One turn round the ring; the first byte that comes back."""
        back = await self.ring.go_round(sequence, state(position, value, tokens), is_prompt=position == 0)
        return int(back.state.payload[0])

    @property
    def held(self) -> list[set[int]]:
        return [set(shard.at) for shard in self.shards]

    async def end(self) -> None:
        for one in self.workers:
            one.close()
        self.ring.fail(KafilaError("the test is over"))
        for wire in self.wires:
            await wire.end()


def state(position: int, value: int = 0, tokens: int = 1) -> HiddenState:
    return HiddenState(bytes([value]) * (4 * WIDTH * tokens), "float32", (1, tokens, WIDTH), position)


async def settle(turns: int = 60) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
