"""One architecture: how its tensors are named, what a stage of it holds, and what its code does out of the ordinary."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafila_sidecar.errors import Refused

BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
TEXT_WORDS = frozenset({"model", "language_model", "transformer", "backbone", "gpt_neox", "decoder", "layers"})
"""What may stand before a block's number in the name of a text model's tensor, in any spelling of it."""
EMBEDDINGS = frozenset(
    {
        *("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embeddings", "embed_in", "embed", "embedder"),
        *("token_embeddings", "embedding", "embed_tokens_per_layer", "ngram_embeddings"),
    }
)
UNEMBEDDINGS = frozenset({"lm_head", "output", "embed_out"})
IGNORED_WORDS = frozenset(
    {
        *("vision_tower", "vision_model", "visual", "vision_embed_tokens", "vision_encoder", "vision_adapter"),
        *("vision_language_adapter", "patch_merger", "patch_merge_mlp", "multi_modal_projector", "mm_projector"),
        *("mm_projector_norm", "audio_tower", "audio_model", "embed_audio", "embed_vision", "vision_embedder"),
        *("img_projection", "image_newline", "mtp", "mtp_layers", "sound_tower", "connector", "img_processor"),
    }
)
"""Parts of a repository that no text model reads: towers for pictures and sound, guesses at later tokens."""
IGNORED_ENDS = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")


class Tying(Enum):
    """Whether embedding and unembedding are one matrix."""

    ALWAYS = "always"
    NEVER = "never"
    CONFIGURED = "configured"
    FILES = "files"  # the code looks whether there is an unembedding, whatever the configuration says


class Spread(Enum):
    """How a value beside the hidden state goes from block to block."""

    CHAINED = "chained"  # each block takes what the one before it returned
    SAME = "same"  # every block takes the same
    EACH = "each"  # every block takes one of its own, made before the first block


class Together(Enum):
    """What of several sequences' tokens an architecture's code computes in one run."""

    BUT_ATTENTION = "but attention"  # everything else
    BESIDE_CACHE = "beside cache"  # what lies outside the modules that have a cache: mostly the MLP
    NOTHING = "nothing"  # one sequence at a time


@dataclass(frozen=True, slots=True)
class Beside:
    """A value that travels beside the state: the parameter of a block's call that takes it."""

    parameter: str
    reach: Spread


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture, as mlx-lm 0.32.2 runs it in mlx_lm.models.`module`.

    blocks, embedding: paths of its modules. state: the parameter of a block's call that takes the hidden state; None
    for the first. returns: how many values a block's call returns, the state first. together: what was shown right.
    """

    module: str
    blocks: str = "model.layers"
    embedding: str = "model.embed_tokens"
    tying: Tying = Tying.CONFIGURED
    state: str | None = None
    returns: int = 1
    beside: tuple[Beside, ...] = ()
    norm: bool = True  # whether weights beside the two matrices lie outside the blocks
    caches: tuple[str, ...] = ("KVCache",)  # kinds that its tests met
    together: Together = Together.BUT_ATTENTION

    def tied(self, config: Mapping[str, Any], tensors: Iterable[str]) -> bool:
        """Whether the unembedding is the embedding: as the configuration says, and where it doesn't, as the files do.

        Raises: Refused when the configuration says that it is not, and there is no unembedding.
        """
        if self.tying in (Tying.ALWAYS, Tying.NEVER):
            return self.tying is Tying.ALWAYS
        untied = any(is_unembedding(name) for name in tensors)
        said = None if self.tying is Tying.FILES else tying_of(config)
        if said is False and not untied:
            raise Refused(
                "config.json says tie_word_embeddings = false, but the checkpoint has no lm_head: its files are "
                "incomplete or its configuration is wrong, choose another copy"
            )
        return not untied if said is None else said

    def holds(self, tensor: str, *, start: int, end: int, head: bool, tied: bool) -> bool:
        """Whether a stage with the blocks [start, end) needs this tensor of the checkpoint."""
        if is_ignored(tensor) or (tied and is_unembedding(tensor)):
            return False
        block = block_of(tensor)
        return head if block is None else start <= block < end


def text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a configuration that describes the text model: all of it, or `text_config`."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def embedded_ids(config: Mapping[str, Any]) -> int:
    """How many ids the model has embeddings for; 0 where config.json doesn't say."""
    sizes = [one.get("vocab_size") for one in (config, text_of(config))]
    return next((size for size in sizes if type(size) is int), 0)


def tying_of(config: Mapping[str, Any]) -> bool | None:
    """What a configuration says of tied embeddings; None where it says nothing."""
    for part in (text_of(config), config):
        said = part.get("tie_word_embeddings")
        if isinstance(said, bool):
            return said
    return None


def count_of(config: Mapping[str, Any]) -> int:
    """How many blocks a configuration describes.

    Raises: Refused when it doesn't say, or says something senseless.
    """
    text = text_of(config)
    key = next((name for name in COUNTS if name in text), COUNTS[0])
    number = text.get(key)
    if type(number) is not int or not 0 < number < 1 << 16:
        raise Refused(f"the model's config.json says {key} = {number!r}, where a positive whole number is needed")
    return number


def block_of(tensor: str) -> int | None:
    """The block that a tensor of the checkpoint belongs to; None outside the text model's blocks."""
    found = BLOCK.search(tensor)
    if found is None or not words_of(tensor[: found.start()]) <= TEXT_WORDS:
        return None
    return int(found[1])


def is_ignored(tensor: str) -> bool:
    """Whether no text model reads this tensor."""
    return tensor.endswith(IGNORED_ENDS) or bool(words_of(tensor) & IGNORED_WORDS)


def is_embedding(tensor: str) -> bool:
    return block_of(tensor) is None and bool(words_of(tensor) & EMBEDDINGS)


def is_unembedding(tensor: str) -> bool:
    return block_of(tensor) is None and bool(words_of(tensor) & UNEMBEDDINGS)


def words_of(tensor: str) -> frozenset[str]:
    return frozenset(tensor.split(".")) - {""}
