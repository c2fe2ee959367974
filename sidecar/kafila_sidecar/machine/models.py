"""The models that may be asked for on this machine, those that were, and what its disk keeps of them."""

import asyncio
import contextlib
import shutil
from pathlib import Path

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config
from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.models.quantisation import MADE_HERE_BITS, check_bits
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.terms import beside_weights
from kafila_sidecar.sharing.spares import SpareRoom
from kafila_sidecar.weights.checkpoint import Checkpoint, Examine, open_checkpoint, open_source
from kafila_sidecar.weights.providers.folder import described_source, folder_source, named, shelf
from kafila_sidecar.weights.providers.names import TABLE, also_known_as, known_as
from kafila_sidecar.weights.providers.source import Source
from kafila_sidecar.weights.store.library import Library

FLEET = (1, 2, 3, 4)
"""For how many equal machines a model's needs are shown."""


class OpenedModels:
    """By model, revision and form: each checkpoint is opened once, and checked before anything else."""

    def __init__(self, config: Config, library: Library, *, examine: Examine) -> None:
        """`examine`: see `open_checkpoint`."""
        self._config = config
        self._library = library
        self._examine = examine
        self._opened: dict[tuple[str, str, int], Checkpoint] = {}

    async def open(self, model: str, revision: str = "", *, bits: int = 0) -> Checkpoint:
        """A checkpoint whose architecture and quantisation are offered; without a revision the latest. `bits`: as it is
        once its matrices are packed while loading, 0 for as they are.

        Raises:
            KafilaError: it can't be had, or is not offered.
        """
        self._opened = {key: checkpoint for key, checkpoint in self._opened.items() if checkpoint.is_there}
        check_bits(bits)
        known = self._opened.get((model, revision, bits))
        if known is not None:
            return known
        if bits:
            return await self._packed(model, await self.open(model, revision), bits)
        checkpoint = await open_checkpoint(
            model,
            hub=self._config.hub.hub(),
            cache=self._config.models,
            revision=revision or None,
            hub_cache=self._config.hub.cache,
            make_room=self._library.make_room,
            examine=self._examine,
        )
        return self._opened.setdefault((model, checkpoint.revision, 0), checkpoint)

    async def of_session(self, terms: ring_pb2.SessionTerms) -> Checkpoint | None:
        """What a session runs; None for a folder that is not on this machine, and was not described here yet.

        Raises:
            KafilaError: it can't be had, or is not offered.
        """
        if not terms.folder:
            return await self.open(terms.model, terms.revision, bits=terms.quantize_bits)
        check_bits(terms.quantize_bits)
        known = [one for (_, revision, bits), one in self._opened.items() if revision == terms.revision and not bits]
        if known and known[0].is_there:
            return await self._packed(terms.model, known[0], terms.quantize_bits)
        return await self._of_folder(terms, await asyncio.to_thread(self._found, terms))

    async def described(self, terms: ring_pb2.SessionTerms) -> Checkpoint:
        """A folder that the session's host has just described.

        Raises:
            KafilaError: it is not offered.
        """
        source = await asyncio.to_thread(described_source, self._config.models, terms.model, terms.revision)
        found = await self._of_folder(terms, source)
        if found is None:
            raise Refused("what the session's host told of its folder is gone from this disk: join again")
        return found

    def folder_for(self, terms: ring_pb2.SessionTerms) -> Path:
        """Where a session's weights go. Raises Refused for a name that can't be part of a path."""
        if terms.folder:
            return shelf(self._config.models, terms.model, terms.revision)
        return self._config.models / terms.model / terms.revision

    async def _of_folder(self, terms: ring_pb2.SessionTerms, source: Source | None) -> Checkpoint | None:
        if source is None:
            return None
        checkpoint = await open_source(source, make_room=self._library.make_room, examine=self._examine)
        kept = self._opened.setdefault((terms.model, terms.revision, 0), checkpoint)
        return await self._packed(terms.model, kept, terms.quantize_bits)

    async def _packed(self, model: str, checkpoint: Checkpoint, bits: int) -> Checkpoint:
        """The same checkpoint as it is once its matrices are packed; as it is for 0."""
        key = (model, checkpoint.revision, bits)
        if not bits:
            return checkpoint
        if key not in self._opened:
            anatomy = await self._examine(checkpoint.config, checkpoint.manifest.tensors, bits)
            self._opened[key] = checkpoint.packed(bits, anatomy)
        return self._opened[key]

    async def packings(self, checkpoint: Checkpoint, context_tokens: int) -> dict[int, Json]:
        """What the planner reads instead if members packed the checkpoint while loading, by bits, the most first;
        nothing of one that is packed already."""
        made: dict[int, Json] = {}
        for bits in () if checkpoint.bits else sorted(MADE_HERE_BITS, reverse=True):
            with contextlib.suppress(Refused):  # it is packed as it comes, or has no matrix for it
                packed = await self._packed(checkpoint.model, checkpoint, bits)
                made[bits] = {"model": packed.sizes, **beside_weights(packed, context_tokens)}
        return made

    def room_for_spares(self, bound_bytes: int | None) -> SpareRoom:
        """On this disk. `bound_bytes`: as this machine's owner said for a session; None: as for all."""
        bound = self._config.spare_bytes if bound_bytes is None else bound_bytes
        return SpareRoom(self._config.data, bound_bytes=bound, left_bytes=self._library.left_bytes)

    def _found(self, terms: ring_pb2.SessionTerms) -> Source | None:
        """The folder itself below one of those that KAFILA_FOLDERS names, else as far as it came here before."""
        for folder in self._config.folders:
            with contextlib.suppress(NotFound, Refused):
                return folder_source(str(folder / named(terms.model)), terms.revision)
        return described_source(self._config.models, terms.model, terms.revision)

    def forget(self, model: str) -> None:
        """Its files are gone."""
        self._opened = {key: checkpoint for key, checkpoint in self._opened.items() if checkpoint.model != model}


class KeptModels:
    """What people ask of the weights on this disk. Each call blocks for as long as the disk takes."""

    def __init__(self, config: Config, library: Library, opened: OpenedModels) -> None:
        self._config = config
        self._library = library
        self._opened = opened

    def named(self) -> pb.ListModelsReply:
        """The short names, with what is here of them."""
        here = {held.model for held in self._library.models()}
        return pb.ListModelsReply(
            models=[
                pb.NamedModel(
                    name=model.name,
                    repository=model.repo,
                    weight_bytes=model.weight_bytes,
                    needed_bytes=[model.needed_bytes(machines) for machines in FLEET],
                    note=model.note,
                    here=model.repo in here,
                    also=also_known_as(model),
                )
                for model in TABLE
            ]
        )

    def kept(self) -> pb.ListWeightsReply:
        """All weights, the most recently used first."""
        return pb.ListWeightsReply(
            weights=[
                pb.KeptWeights(
                    model=held.model,
                    revision=held.revision,
                    disk_bytes=held.disk_bytes,
                    whole=held.is_whole,
                    in_use=held.in_use,
                    last_used_s=held.last_used_s,
                )
                for held in self._library.models()
            ],
            limit_bytes=self._config.weights_limit_bytes,
            free_disk_bytes=shutil.disk_usage(self._config.data).free,
            folder=str(self._config.models),
        )

    def remove(self, request: pb.RemoveWeightsRequest) -> pb.FreedReply:
        """See `Library.remove`; `request.model` may be a short name."""
        named = known_as(request.model)
        model = named.repo if named else request.model
        freed_bytes = self._library.remove(model, request.revision)
        self._opened.forget(model)
        return pb.FreedReply(bytes=freed_bytes)

    def prune(self, request: pb.PruneWeightsRequest) -> pb.FreedReply:
        """See `Library.prune`."""
        before = {held.model for held in self._library.models()}
        freed_bytes = self._library.prune(unused_for_s=request.unused_for_s)
        for model in before - {held.model for held in self._library.models()}:
            self._opened.forget(model)
        return pb.FreedReply(bytes=freed_bytes)
