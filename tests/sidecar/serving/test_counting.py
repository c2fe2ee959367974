"""What a stage tells of its work to whoever counts it."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kafila_sidecar.numbers.served import ServedNumbers
from tests.sidecar.serving.stages import answer, ask, party, refusal

pytestmark = pytest.mark.mlx


async def test_answer_when_it_ended_then_its_circuits_are_told_and_every_stage_and_hop_has_a_time(
    tiny: Path, tmp_path: Path
) -> None:
    async with party(tiny, tmp_path, "ada", "bob") as made:
        await made.serve((0, 3, 6), ("ada", "bob"))
        await answer(made["bob"], ask())
        await made.until_free()
        ((record, decoded),) = made["ada"].counted
    assert not made["bob"].counted
    registry = CollectorRegistry()
    ServedNumbers(registry).request_ended(record, decoded)
    assert registry.get_sample_value("kafila_output_tokens_total") == record["output_tokens"] == 12
    assert registry.get_sample_value("kafila_circuits_total") == 1 + len(decoded)
    for member in ("ada", "bob"):
        assert registry.get_sample_value("kafila_stage_seconds_count", {"member": member}) == len(decoded)
    assert registry.get_sample_value("kafila_hop_bytes_total", {"from_member": "ada", "to_member": "bob"})


async def test_kv_bytes_while_an_answer_runs_are_what_its_caches_take_and_none_once_its_epoch_is_over(
    tiny: Path, tmp_path: Path
) -> None:
    async with party(tiny, tmp_path, "ada", "bob") as made:
        await made.serve((0, 3, 6), ("ada", "bob"))
        assert await made["ada"].stage.kv_bytes() == 0
        endless = asyncio.create_task(refusal(made["ada"], ask(num_predict=-1)))
        async with asyncio.timeout(20):
            while not await made["bob"].stage.kv_bytes():  # noqa: ASYNC110  # the stages tell nobody
                await asyncio.sleep(0.01)
        assert await made["ada"].stage.kv_bytes() > 0
        endless.cancel()
        await asyncio.gather(endless, return_exceptions=True)
        await made.until_free(5.0)
        assert await made["bob"].stage.kv_bytes() > 0  # kept for who asks the same again
        await made.stop()
        assert [await made[name].stage.kv_bytes() for name in ("ada", "bob")] == [0, 0]
