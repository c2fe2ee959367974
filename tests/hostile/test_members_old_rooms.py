"""Somebody whom the session has put out waits in a room of before for those who slept and do not know of it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_sidecar.session.comeback import COMPANY_S, LEAST_STAY_S, Seeking
from kafila_sidecar.session.stay import CameBack, Deserted
from kafila_sidecar.session.turnstile import Turnstile
from tests.support.virtual_time import simulate


class EndlessStay:
    """In a room where somebody answers every knock and never takes anybody back."""

    def __init__(self, *, meets_nobody: bool) -> None:
        self.meets_nobody = meets_nobody

    async def run(self) -> CameBack:
        await asyncio.Event().wait()
        raise AssertionError


class Callers:
    """The session's members, who say every few seconds that it is in another room, if they can be heard."""

    def __init__(self, *, are_heard: bool) -> None:
        self.news = asyncio.Event()
        self.learnt = ("another room",) if are_heard else ()

    async def call(self) -> None:
        while True:
            await asyncio.sleep(5.0)
            self.news.set()


async def leaves_after(stay: EndlessStay, callers: Callers) -> float:
    """How long a sleeper stays in a room, at most ten minutes."""
    loop = asyncio.get_running_loop()
    nothing = cast(Any, SimpleNamespace())
    seeking = Seeking(nothing, nothing, lambda _: None, asyncio.Event(), Turnstile(), cast(Any, callers))
    began, calling = loop.time(), asyncio.create_task(callers.call())
    try:
        async with asyncio.timeout(600.0):
            await seeking._stay(cast(Any, stay))
    except (Deserted, TimeoutError):
        return loop.time() - began
    finally:
        calling.cancel()
    raise AssertionError("nobody has taken it back")


@pytest.mark.parametrize(
    ("meets_nobody", "are_heard", "least_s", "most_s"),
    [
        (False, True, COMPANY_S, COMPANY_S + 10.0),
        (True, True, LEAST_STAY_S, LEAST_STAY_S + 10.0),
        (False, False, 600.0, 601.0),  # who is here may be all that is left of the session
    ],
    ids=["held by one who was put out", "alone", "nobody says that it is elsewhere"],
)
def test_sleeper_when_others_say_that_the_session_is_elsewhere_then_nobody_holds_it_in_a_room_of_before(
    meets_nobody: bool, are_heard: bool, least_s: float, most_s: float
) -> None:
    async def scene() -> float:
        return await leaves_after(EndlessStay(meets_nobody=meets_nobody), Callers(are_heard=are_heard))

    assert least_s <= simulate(scene) <= most_s
