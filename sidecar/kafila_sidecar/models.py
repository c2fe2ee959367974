"""The models that were asked for on this machine: each checkpoint is opened once, and checked before anything else."""

from kafila_sidecar.config import Config
from kafila_sidecar.runtime.shard.families import family_of
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint


class OpenedModels:
    """By model and revision."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._opened: dict[tuple[str, str], Checkpoint] = {}

    async def open(self, model: str, revision: str = "") -> Checkpoint:
        """A checkpoint whose architecture and quantisation are offered; without a revision the latest.

        Raises:
            KafilaError: it can't be had, or is not offered.
        """
        known = self._opened.get((model, revision))
        if known is not None and revision:
            return known
        checkpoint = await open_checkpoint(
            model,
            hub=self._config.hub.hub(),
            cache=self._config.data / "models",
            revision=revision or None,
            hub_cache=self._config.hub.cache,
        )
        family_of(checkpoint.config)
        return self._opened.setdefault((model, checkpoint.revision), checkpoint)
