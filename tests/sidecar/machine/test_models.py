"""What people may ask for, and what they do with the weights that are here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config, size_bytes
from kafila_sidecar.errors import InvalidInput, NotFound, Refused
from kafila_sidecar.machine.models import KeptModels, OpenedModels
from kafila_sidecar.models.anatomy import Anatomy, Headers
from kafila_sidecar.weights.checkpoint import Checkpoint
from kafila_sidecar.weights.format.layout import anatomy_of_files
from kafila_sidecar.weights.format.manifest import Manifest, Tensor
from kafila_sidecar.weights.store.library import Library
from tests.support.model_host import ModelHost

Make = Callable[..., Path]
REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"


async def as_in_the_files(config: Mapping[str, Any], headers: Headers) -> Anatomy:
    """Without MLX: what tensors take in their files."""
    return anatomy_of_files(Manifest({}, cast(Mapping[str, Tensor], headers)), config)


class Here:
    """One machine's models, whose host is on loopback."""

    def __init__(self, data: Path, environment: Mapping[str, str]) -> None:
        config = Config.read(environment, socket_path=data / "socket", data=data)
        library = Library(config.models, limit_bytes=config.weights_limit_bytes)
        self.opened = OpenedModels(config, library, examine=as_in_the_files)
        self.kept = KeptModels(config, library, self.opened)

    async def fetched(self, model: str = REPO) -> Checkpoint:
        checkpoint = await self.opened.open(model)
        await checkpoint.fetch(checkpoint.shard(start=0, end=4, head=True))
        return checkpoint


async def test_weights_when_fetched_then_listed_as_here_and_gone_after_removal(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        here = Here(tmp_path, {"HF_ENDPOINT": host.endpoint})
        checkpoint = await here.fetched()
        (kept,) = here.kept.kept().weights
        assert (kept.model, kept.revision, kept.whole, kept.in_use) == (REPO, checkpoint.revision, True, False)
        assert kept.disk_bytes >= checkpoint.shard_bytes(checkpoint.manifest.tensors)
        assert [model.name for model in here.kept.named().models if model.here] == ["smollm2:135m"]
        with checkpoint.in_use(), pytest.raises(Refused, match="leave that first"):
            here.kept.remove(pb.RemoveWeightsRequest(model="smollm2:135m"))
        assert here.kept.remove(pb.RemoveWeightsRequest(model="smollm2:135m")).bytes == kept.disk_bytes
        with pytest.raises(NotFound):
            here.kept.remove(pb.RemoveWeightsRequest(model=REPO))
        again = await here.fetched()
        assert again is not checkpoint
        assert again.fetched_bytes == checkpoint.fetched_bytes


async def test_weights_when_another_server_removed_them_then_they_are_opened_anew(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        one, other = (Here(tmp_path, {"HF_ENDPOINT": host.endpoint}) for _ in range(2))
        checkpoint = await one.fetched()
        assert other.kept.prune(pb.PruneWeightsRequest(unused_for_s=0)).bytes > 0
        again = await one.opened.open(REPO, checkpoint.revision)
        assert again is not checkpoint
        await again.fetch(again.shard(start=0, end=4, head=True))
        assert again.fetched_bytes == checkpoint.fetched_bytes


async def test_weights_when_there_is_a_limit_then_the_longest_unused_make_room_and_a_short_limit_refuses(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    with ModelHost({REPO: checkpoint_folder(width=256), "other/model": checkpoint_folder(width=264)}) as host:
        bytes_of_one = (await Here(tmp_path, {"HF_ENDPOINT": host.endpoint}).fetched()).fetched_bytes
        limit = str(bytes_of_one * 3 // 2)
        here = Here(tmp_path, {"HF_ENDPOINT": host.endpoint, "KAFILA_WEIGHTS_LIMIT": limit})
        await here.fetched("other/model")
        assert [kept.model for kept in here.kept.kept().weights] == ["other/model"]
        short = Here(tmp_path, {"HF_ENDPOINT": host.endpoint, "KAFILA_WEIGHTS_LIMIT": "1kB"})
        with pytest.raises(Refused, match="KAFILA_WEIGHTS_LIMIT"):
            await short.fetched()


SIZES = {"": 0, "0": 0, "200GB": 200 * 10**9, "1.5 TiB": 3 << 39, "12 mb": 12 * 10**6, "7": 7}


@pytest.mark.parametrize("text", SIZES)
def test_size_when_written_as_people_do_then_read(text: str) -> None:
    assert size_bytes(text) == SIZES[text]


@pytest.mark.parametrize("text", ["much", "-1GB", "1e9", "5 apples", "1" * 30])
def test_size_when_it_is_none_then_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="KAFILA_WEIGHTS_LIMIT"):
        size_bytes(text)
