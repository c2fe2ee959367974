"""A checkpoint that says given token ids, whatever the prompt: an ordinary llama model whose weights are worked out.

Its chat template writes one special token, `<|answer|>`, at the very end of a prompt and nowhere else; the model counts
how many tokens ago that was.

- Embedding: every token has 1 in the channel ONE; the answer's token has 1 in MARK as well.
- Block 0, attention: a query from ONE meets keys from MARK, sharp: all weight goes to the answer's token where it has
  been seen, so the value, MARK, is 1 from there on and 0 before. It goes into the channel SEEN.
- Block 1, attention: the keys are SEEN, so all tokens from the answer's on share the weight evenly; the value is MARK
  again, which only the first of them has. At the step k, counted from 0, that is 1/(k+1). It goes into SHARE.
- Block 1, MLP: a staircase. Two hidden units for each step k: silu(z + H) - silu(z - H) is 0 for z far below 0 and 2H
  far above, where z grows as SHARE falls and is 0 halfway between steps k - 1 and k. So the channel of step k is 1 from
  step k on.
- Head: the row of a token adds, for each step that says it, that step's channel less the next one's. The row that is
  asked for has 1 and every other row 0, times GAIN, so that sampling at a temperature picks it too.
- Rope would turn keys and queries, so they live in the slowest pair of its channels alone, at a base so high that it
  stands still. All other blocks add nothing. ONE is large enough for RMSNorm to scale every token alike.

After the last id it says the tokenizer's end for ever.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.checkpoint import stored, write_json, write_weights
from tests.support.vocabularies import ANSWER

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|answer|>{% endif %}"
)
BLOCKS = 4
HEAD_DIM = 64
ONE, MARK, SEEN, SHARE, STEPS = 0, 1, 2, 3, 4
"""Channels of the hidden state; the steps' own begin at STEPS."""
LARGE = 4096.0
"""What ONE holds; RMSNorm's scale then differs between tokens by less than float32 shows."""
SHARP = 60.0
"""By how much the scores of tokens that are meant exceed the others'."""
H = 20.0
FAR = 60.0
"""Where silu is as good as its limits, seen from 0 and from H."""
GAIN = 50.0
"""The logit of the id that is asked for; others have 0."""
FEW = 200
"""As many steps as float32 tells apart with ease."""

Array = NDArray[np.float32]


def saying_folder(folder: Path, ids: Sequence[int], *, padding: int = 0, template: str = TEMPLATE) -> Path:
    """Makes the checkpoint in `folder`, where a tokenizer lies, for at most FEW ids. The head is `padding` ids wider
    than the tokenizer, and those would win if they were picked from. template: has to write the answer's token last."""
    if len(ids) > FEW:
        raise ValueError(f"{len(ids)} ids are more than {FEW}")
    add_answer_token(folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer = Tokenizer.load(folder)
    end, answer = min(tokenizer.eos_ids), tokenizer.backend.token_to_id(ANSWER)
    assert answer is not None
    config = configuration(tokenizer.size + padding, len(ids) + 1, end)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": end, "do_sample": False})
    tensors = weights(config, [*ids, end], answer=answer, padding=padding)
    write_weights(folder, [(name, stored(array, "f32")) for name, array in tensors.items()], files=2)
    return folder


def add_answer_token(folder: Path) -> None:
    """Gives the tokenizer file, where there is one, the answer's token."""
    path = folder / "tokenizer.json"
    if path.is_file():
        backend = Backend.from_file(str(path))
        backend.add_special_tokens([AddedToken(ANSWER, special=True, normalized=False)])
        backend.save(str(path))


def configuration(vocab: int, steps: int, end: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "torch_dtype": "float32",
        "hidden_size": -(-(STEPS + steps) // 32) * 32,
        "intermediate_size": -(-2 * steps // 32) * 32,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e12,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "vocab_size": vocab,
        "eos_token_id": end,
    }


def weights(config: dict[str, Any], script: Sequence[int], *, answer: int, padding: int) -> dict[str, Array]:
    width, vocab = int(config["hidden_size"]), int(config["vocab_size"])
    made: dict[str, Array] = {"model.embed_tokens.weight": embedding(vocab, width, answer)}
    for block in range(BLOCKS):
        made |= {f"model.layers.{block}.{name}": array for name, array in empty_block(config).items()}
    scale = np.sqrt(width) / LARGE  # what RMSNorm multiplies a token with
    look(made, "model.layers.0.self_attn", scale, keys=MARK, into=SEEN)
    look(made, "model.layers.1.self_attn", scale, keys=SEEN, into=SHARE)
    staircase(made, "model.layers.1.mlp", scale, len(script))
    made["model.norm.weight"] = np.ones(width, np.float32)
    made["lm_head.weight"] = head(vocab, width, script, padding) * (GAIN / scale)
    return made


def embedding(vocab: int, width: int, answer: int) -> Array:
    made = np.zeros((vocab, width), np.float32)
    made[:, ONE] = LARGE
    made[answer, MARK] = 1
    return made


def empty_block(config: dict[str, Any]) -> dict[str, Array]:
    width, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    shapes = {
        **{f"self_attn.{name}_proj.weight": (HEAD_DIM, width) for name in "qkv"},
        "self_attn.o_proj.weight": (width, HEAD_DIM),
        **{f"mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")},
        "mlp.down_proj.weight": (width, inner),
    }
    norms = {f"{name}_layernorm.weight": np.ones(width, np.float32) for name in ("input", "post_attention")}
    return norms | {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def look(made: dict[str, Array], attention: str, scale: float, *, keys: int, into: int) -> None:
    """Every token takes the mean of MARK over the tokens whose channel `keys` is 1, where there are any."""
    slowest = HEAD_DIM // 2 - 1
    made[f"{attention}.q_proj.weight"][slowest, ONE] = 1 / (scale * LARGE)
    made[f"{attention}.k_proj.weight"][slowest, keys] = SHARP * np.sqrt(HEAD_DIM) / scale
    made[f"{attention}.v_proj.weight"][0, MARK] = 1 / scale
    made[f"{attention}.o_proj.weight"][into, 0] = 1


def staircase(made: dict[str, Array], mlp: str, scale: float, steps: int) -> None:
    for step in range(steps):
        at, before = 1 / (step + 1), 1 / step if step else 3.0
        middle, slope = (at + before) / 2, 2 * FAR / (before - at)
        for unit, shift, sign in ((2 * step, H, 1), (2 * step + 1, -H, -1)):
            made[f"{mlp}.gate_proj.weight"][unit, SHARE] = -slope / scale
            made[f"{mlp}.gate_proj.weight"][unit, ONE] = (slope * middle + shift) / (scale * LARGE)
            made[f"{mlp}.up_proj.weight"][unit, ONE] = 1 / (scale * LARGE)
            made[f"{mlp}.down_proj.weight"][STEPS + step, unit] = sign / (2 * H)


def head(vocab: int, width: int, script: Sequence[int], padding: int) -> Array:
    made = np.zeros((vocab, width), np.float32)
    for step, token in enumerate(script):
        made[token, STEPS + step] += 1
        if step + 1 < len(script):
            made[token, STEPS + step + 1] -= 1
    if padding:
        made[-padding:, ONE] = 1
    return made
