"""How long whoever decodes waits for a prompt's chunks: a ring played on a clock of its own, run by run."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafila_planner import Plan, Problem, chunk_beside, chunking, make_plan, problem_from_json
from kafila_sidecar.serving.gathering import Gathering, InLine
from kafila_sidecar.serving.scheduler import RUNS_A_GAP, STEPS_A_CHUNK, ChunkPace
from tests.support.plans import MODEL

PROMPT, DECODER = 0, 1
PROMPT_TOKENS = 1500
MOST_TOKENS = 512
BLOCK_S = (0.01, 0.002, 0.005)  # of a step, by stage
HEAD_S = 1e-6  # of the plan's head, which the played stages do without
TOKEN_S = st.lists(st.floats(1e-5, 5e-4), min_size=1, max_size=3)  # of a block, by stage


def planned(token_s: Sequence[float], *, is_prefill_known: bool = True) -> tuple[Problem, Plan]:
    """Stages of two blocks, which take so much longer for each further token of a chunk."""
    members = [
        {
            "name": f"m{place}",
            "rtt_s": 1e-6,
            "memory_bytes": 1e9,
            "overhead_s": 0.0,
            "block_s": {"1": BLOCK_S[place]},
            "head_s": {"1": HEAD_S},
            **({"prefill_s": {str(n): chunk_s(place, token_s, n) for n in (32, 512)}} if is_prefill_known else {}),
        }
        for place in range(len(token_s))
    ]
    read = problem_from_json(
        {
            "model": {**MODEL, "blocks": 2 * len(token_s)},
            "members": members,
            "strategy": "uniform",
            "context_tokens": 2048,
            "chunk_tokens": MOST_TOKENS,
        }
    )
    plan = make_plan(read)
    assert isinstance(plan, Plan)
    return read, plan


def chunk_s(place: int, token_s: Sequence[float], tokens: int) -> float:
    """Of a block."""
    return BLOCK_S[place] + (tokens - 1) * token_s[place]


class PlayedStages:
    """What waits at each stage runs as `Gathering` says: a step that goes round again and again, and a prompt's chunks,
    one behind the other."""

    def __init__(self, pace: ChunkPace, token_s: Sequence[float]) -> None:
        self.came: list[float] = []  # when a token was back at the head
        self._pace, self._token_s = pace, token_s
        self._lines = [Gathering[None]() for _ in token_s]
        self._busy = [False for _ in token_s]
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._left = PROMPT_TOKENS
        self._now = 0.0
        self.chunks: list[int] = []

    def play(self) -> None:
        """Until the prompt is through."""
        self._lines[0].add(InLine(DECODER, 1, False, None))
        self._run(0)
        self._play_until(1.0)
        self._next_chunk()
        while self._left or any(line.has(PROMPT) for line in self._lines):
            self._play_until(self._due[0][0])
        self._play_until(self._now + 3.0)

    def _play_until(self, end: float) -> None:
        while self._due and self._due[0][0] <= end:
            self._now, _, action = heapq.heappop(self._due)
            action()

    def _next_chunk(self) -> None:
        size = min(self._pace.tokens(PROMPT_TOKENS, among=2), self._left)
        self._left -= size
        self.chunks.append(size)
        self._lines[0].add(InLine(PROMPT, size, True, None))
        self._run(0)

    def _run(self, place: int) -> None:
        if self._busy[place]:
            return
        run = self._lines[place].next(8)
        if not run:
            return
        self._busy[place] = True
        tokens = run[0].tokens
        took_s = 2 * (chunk_s(place, self._token_s, tokens) if run[0].is_chunk else BLOCK_S[place])
        heapq.heappush(self._due, (self._now + took_s, next(self._order), lambda: self._ran(place, run, took_s)))

    def _ran(self, place: int, run: Sequence[InLine[None]], took_s: float) -> None:
        self._busy[place] = False
        if place == 0:
            self._noted_at_head(run[0], took_s)
        for one in run:
            self._go_on(place, one)
        self._run(place)

    def _noted_at_head(self, one: InLine[None], took_s: float) -> None:
        if not one.is_chunk:
            self._pace.ran_step(took_s)
            return
        self._pace.ran_chunk(one.tokens, took_s)
        if self._left:
            self._next_chunk()

    def _go_on(self, place: int, one: InLine[None]) -> None:
        is_last = place + 1 == len(self._lines)
        if is_last and one.is_chunk:
            return
        if is_last:
            self.came.append(self._now)
        following = (place + 1) % len(self._lines)
        self._lines[following].add(one)
        self._run(following)


def round_s(stages: int) -> float:
    """Of a token, once round."""
    return 2 * sum(BLOCK_S[:stages])


def longest_gap_s(times: Sequence[float]) -> float:
    return max(late - early for early, late in pairwise(times))


@settings(max_examples=60, deadline=None)
@given(TOKEN_S)
@example([6.51503078586796e-05])
def test_gap_when_a_prompt_is_read_beside_a_decoder_then_under_four_rounds(token_s: list[float]) -> None:
    problem, plan = planned(token_s)
    pace = ChunkPace(MOST_TOKENS, chunking(problem, plan), chunk_beside(problem, plan, STEPS_A_CHUNK))
    ring = PlayedStages(pace, token_s)
    ring.play()
    assert sum(ring.chunks) == PROMPT_TOKENS
    assert longest_gap_s(ring.came) <= RUNS_A_GAP * (round_s(len(token_s)) + HEAD_S) + 1e-9


def test_gap_when_only_a_later_stage_is_slow_at_chunks_then_under_four_rounds_too() -> None:
    token_s = [1e-6, 1e-6, 1e-3]
    problem, plan = planned(token_s)
    gaps = []
    for beside in (chunk_beside(problem, plan, STEPS_A_CHUNK), None):
        ring = PlayedStages(ChunkPace(MOST_TOKENS, lambda _: MOST_TOKENS, beside), token_s)
        ring.play()
        gaps.append(longest_gap_s(ring.came) / round_s(3))
    assert gaps[0] <= RUNS_A_GAP < 10 < gaps[1]


@pytest.mark.parametrize("token_s", [1e-5, 3e-4])
def test_gap_when_the_plan_does_not_know_chunks_then_the_head_finds_out_with_the_second(token_s: float) -> None:
    problem, plan = planned([token_s] * 3, is_prefill_known=False)
    assert chunk_beside(problem, plan, STEPS_A_CHUNK) is None
    ring = PlayedStages(ChunkPace(MOST_TOKENS, chunking(problem, plan)), [token_s] * 3)
    ring.play()
    longest_s = 2 * STEPS_A_CHUNK * BLOCK_S[0]
    assert ring.chunks[0] == MOST_TOKENS
    assert all(2 * chunk_s(0, [token_s] * 3, size) <= 1.4 * longest_s for size in ring.chunks[4:])
