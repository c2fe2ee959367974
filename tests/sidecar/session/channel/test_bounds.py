"""What waits for a slow listener or a slow way is bounded, in number and in bytes."""

import asyncio

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.events import MemberDeparted, MessageFrom
from kafila_sidecar.session.channel.gossip import MOST_WAITING, MOST_WAITING_BYTES, Way
from kafila_sidecar.session.channel.queue import MOST_UNREAD, MOST_UNREAD_BYTES, EventQueue
from kafila_sidecar.session.channel.waiting import MOST_BYTES, MOST_MESSAGES, Waiting


def large(size: int) -> MessageFrom:
    return MessageFrom("anna", ring_pb2.Control(plan=ring_pb2.PlanProposal(plan_json="x" * size)))


async def ignore(_: bytes) -> None: ...


async def waits(feed: EventQueue) -> bool:
    waiting = asyncio.ensure_future(feed.has_room())
    await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return not done


async def test_feed_when_its_listener_is_behind_then_those_who_bring_events_wait() -> None:
    for events, enough in ((MemberDeparted("anna"), MOST_UNREAD), (large(200_000), MOST_UNREAD_BYTES // 200_000 + 1)):
        feed = EventQueue()
        feed.tell([events] * (enough - 1))
        assert not await waits(feed)
        feed.tell([events])
        assert await waits(feed)
        assert await feed.next() == events
        assert not await waits(feed)
        assert feed._unread_bytes >= 0


async def test_feed_when_it_has_ended_then_nobody_waits_and_what_is_unread_comes_first() -> None:
    feed = EventQueue()
    feed.tell([MemberDeparted("anna")] * (MOST_UNREAD + 1))
    feed.end()
    assert not await waits(feed)
    assert [await feed.next() for _ in range(MOST_UNREAD + 1)] == [MemberDeparted("anna")] * (MOST_UNREAD + 1)
    assert await feed.next() is None


async def test_way_when_it_stalls_then_later_messages_are_lost_on_it_only() -> None:
    for size, most in ((10, MOST_WAITING), (250_000, MOST_WAITING_BYTES // 250_000 + 1)):
        way = Way(ignore)
        for _ in range(2 * MOST_WAITING):
            way.put(bytes(size))
        assert way.waiting == most
        running = asyncio.create_task(way.run())
        await way.emptied()
        assert way.waiting_bytes == 0
        running.cancel()


def test_waiting_when_flooded_then_the_latest_are_kept() -> None:
    waiting = Waiting()
    for number in range(3 * MOST_MESSAGES):
        waiting.put(b"%d" % number)
        waiting.put(b"%d" % number)
    assert waiting.take() == [b"%d" % number for number in range(2 * MOST_MESSAGES, 3 * MOST_MESSAGES)]
    for number in range(10):
        waiting.put(bytes([number]) * (MOST_BYTES // 4))
    assert len(waiting) == 4
    assert waiting.held_bytes <= MOST_BYTES
    assert len(waiting.take()) == 4
    assert (len(waiting), waiting.held_bytes) == (0, 0)
