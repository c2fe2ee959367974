"""Mail on its way out: in order, kept while nobody takes it, given up where it is said no more."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.session.rendezvous.mailbox import Mailbox
from kafila_sidecar.session.rendezvous.outbox import MOST_WAITING, Outbox


class Post:
    """A rendezvous' end: what was posted, once it may be; `gone`: it does not answer so many times."""

    def __init__(self, *, gone: int = 0) -> None:
        self.came: list[bytes] = []
        self.begun: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()
        self._gone = gone

    async def post(self, to: Sequence[int], body: bytes) -> None:
        self.begun.append(body)
        await self.open.wait()
        if self._gone:
            self._gone -= 1
            raise Unavailable("the rendezvous does not answer")
        self.came.append(body)


@asynccontextmanager
async def posting(post: Post) -> AsyncIterator[Outbox]:
    outbox = Outbox(cast(Mailbox, post))
    task = asyncio.create_task(outbox.run())
    try:
        async with asyncio.timeout(10):
            yield outbox
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_outbox_when_what_waits_is_dropped_then_only_what_is_put_later_goes() -> None:
    post = Post()
    async with posting(post) as outbox:
        outbox.hold()
        for body in (b"1", b"2"):
            outbox.put((7,), body)
        await asyncio.sleep(0)
        outbox.drop()
        outbox.put((7,), b"3")
        outbox.go_on()
        await outbox.emptied()
    assert post.came == [b"3"]


async def test_outbox_when_all_is_dropped_then_nobody_waits_for_it() -> None:
    post = Post()
    async with posting(post) as outbox:
        outbox.hold()
        outbox.put((7,), b"1")
        await asyncio.sleep(0)
        outbox.drop()
        outbox.go_on()
        await outbox.emptied()
        assert post.came == []
        outbox.put((7,), b"2")
        await outbox.emptied()
    assert post.came == [b"2"]


async def test_outbox_when_dropped_in_the_middle_of_a_post_then_what_is_put_next_is_not_taken_for_that() -> None:
    post = Post()
    post.open.clear()
    async with posting(post) as outbox:
        outbox.put((7,), b"1")
        outbox.put((7,), b"2")
        while not post.begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        outbox.drop()
        outbox.put((7,), b"3")
        post.open.set()
        await outbox.emptied()
    assert post.came == [b"1", b"3"]


async def test_outbox_when_the_rendezvous_does_not_answer_then_all_goes_in_order_once_it_does() -> None:
    post = Post(gone=1)
    async with posting(post) as outbox:
        for body in (b"1", b"2"):
            outbox.put((7,), body)
        await outbox.emptied()
    assert (post.begun, post.came) == ([b"1", b"1", b"2"], [b"1", b"2"])


async def test_outbox_when_too_much_waits_then_the_latest_is_kept() -> None:
    post = Post()
    async with posting(post) as outbox:
        outbox.hold()
        for number in range(MOST_WAITING + 2):
            outbox.put((7,), str(number).encode())
        outbox.put((), b"for nobody")
        outbox.go_on()
        await outbox.emptied()
    assert post.came == [str(number).encode() for number in range(2, MOST_WAITING + 2)]
