"""What people may ask for, and what they do with the weights that are here."""

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config, size_bytes
from kafila_sidecar.errors import InvalidInput, NotFound, Refused
from kafila_sidecar.machine.models import KeptModels, OpenedModels
from kafila_sidecar.models.anatomy import Anatomy, Headers
from kafila_sidecar.session.terms import make_terms
from kafila_sidecar.weights.checkpoint import Checkpoint
from kafila_sidecar.weights.format.layout import anatomy_of_files
from kafila_sidecar.weights.format.manifest import Manifest, Tensor
from kafila_sidecar.weights.providers.folder import lay_down, take_description
from kafila_sidecar.weights.providers.names import known_as
from kafila_sidecar.weights.store.library import Library
from tests.support.model_host import ModelHost

Make = Callable[..., Path]
REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"


async def as_in_the_files(config: Mapping[str, Any], headers: Headers, bits: int) -> Anatomy:
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
        assert all(known_as(name) is known_as(model.name) for model in here.kept.named().models for name in model.also)
        assert {name for model in here.kept.named().models for name in model.also} >= {"qwen3", "smollm2:latest"}
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
    assert size_bytes("KAFILA_WEIGHTS_LIMIT", text) == SIZES[text]


@pytest.mark.parametrize("text", ["much", "-1GB", "1e9", "5 apples", "1" * 30])
def test_size_when_it_is_none_then_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="KAFILA_WEIGHTS_LIMIT"):
        size_bytes("KAFILA_WEIGHTS_LIMIT", text)


async def test_model_when_asked_for_in_another_form_then_of_the_same_files_and_opened_once(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        here = Here(tmp_path, {"HF_ENDPOINT": host.endpoint})
        plain = await here.fetched()
        packed = await here.opened.open(REPO, bits=4)
        assert (packed.bits, plain.bits, packed.revision) == (4, 0, plain.revision)
        assert packed.download_bytes(packed.manifest.tensors) == 0
        assert await here.opened.open(REPO, plain.revision, bits=4) is packed
        assert await here.opened.open(REPO, plain.revision) is plain


async def test_packings_when_a_checkpoint_comes_as_it_is_then_by_bits_and_of_a_packed_one_none(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    here = Here(tmp_path, {})
    folder = str(checkpoint_folder(vocab_size=24, intermediate_size=24))
    plain, packed = [await here.opened.open(folder, bits=bits) for bits in (0, 8)]
    made = await here.opened.packings(plain, 64)
    assert list(made) == [8, 4]
    assert {"model", "reserve_bytes", "prefill_peak_bytes"} == made[8].keys()
    assert made[8]["model"] == packed.sizes
    assert await here.opened.packings(packed, 64) == {}


async def test_packings_when_a_checkpoint_is_quantised_as_it_comes_then_none(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    async def refusing(config: Mapping[str, Any], headers: Headers, bits: int) -> Anatomy:
        if bits:
            raise Refused("the checkpoint is quantised already")
        return await as_in_the_files(config, headers, bits)

    config = Config.read({}, socket_path=tmp_path / "socket", data=tmp_path)
    opened = OpenedModels(config, Library(config.models), examine=refusing)
    assert await opened.packings(await opened.open(str(checkpoint_folder(bits=4, width=32))), 64) == {}


@pytest.mark.parametrize("bits", [1, 2, 5, 16])
async def test_model_when_members_would_quantise_to_what_they_cant_then_refused(tmp_path: Path, bits: int) -> None:
    with pytest.raises(InvalidInput, match="choose 4 or 8"):
        await Here(tmp_path, {}).opened.open(REPO, bits=bits)


def terms_of(checkpoint: Checkpoint) -> ring_pb2.SessionTerms:
    request = pb.CreateSessionRequest(model=checkpoint.model)
    return make_terms(request, checkpoint, rendezvous_at_host=False)


async def test_folder_of_a_session_when_it_lies_here_too_then_used_in_place_else_it_has_to_be_described(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    folder = checkpoint_folder()
    host = Here(tmp_path / "host", {})
    terms = terms_of(await host.opened.open(str(folder)))
    assert (terms.folder, terms.model) == (True, "model")
    assert str(folder.parent) not in str(terms)
    assert terms.describing_bytes > (folder / "tokenizer.json").stat().st_size
    assert await Here(tmp_path / "none", {}).opened.of_session(terms) is None
    same = await Here(tmp_path / "same", {"KAFILA_FOLDERS": f"/nowhere:{folder.parent}"}).opened.of_session(terms)
    assert same is not None
    assert same.folder == folder
    assert same.download_bytes(same.manifest.tensors) == 0
    assert await host.opened.of_session(terms) is not None


async def test_folder_of_a_session_when_the_one_here_is_another_then_it_has_to_be_described(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    terms = terms_of(await Here(tmp_path / "host", {}).opened.open(str(checkpoint_folder())))
    other = checkpoint_folder(tied=False)
    assert await Here(tmp_path / "guest", {"KAFILA_FOLDERS": str(other.parent)}).opened.of_session(terms) is None


async def test_folder_of_a_session_when_it_was_described_once_then_it_is_known_and_listed_by_its_name(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    checkpoint = await Here(tmp_path / "host", {}).opened.open(str(checkpoint_folder()))
    terms = terms_of(checkpoint)
    guest = Here(tmp_path / "guest", {})
    told = b"".join(checkpoint.described())
    reader = BytesIO(told)
    lay_down(take_description(reader.read, terms.revision), reader.read, guest.opened.folder_for(terms))
    assert reader.read() == b""
    assert len(told) - 4 == terms.describing_bytes
    opened = await guest.opened.of_session(terms)
    assert opened is not None
    assert (opened.name, opened.revision, opened.sizes) == ("model", checkpoint.revision, checkpoint.sizes)
    assert await guest.opened.described(terms) is opened
    assert [kept.model for kept in guest.kept.kept().weights] == ["folder/model"]


@pytest.mark.parametrize("model", ["../../etc", "a/b", "..", ""])
async def test_folder_of_a_session_when_its_name_would_lead_elsewhere_then_refused(tmp_path: Path, model: str) -> None:
    terms = ring_pb2.SessionTerms(model=model, revision="0" * 40, folder=True)
    here = Here(tmp_path, {"KAFILA_FOLDERS": str(tmp_path)})
    with pytest.raises(Refused, match="no name of a folder"):
        await here.opened.of_session(terms)
    with pytest.raises(Refused, match="no name of a folder"):
        here.opened.folder_for(terms)
