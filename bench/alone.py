"""mlx-lm by itself, for `bench.serving`: each line of standard input is how many prompts to answer, each line of output
when their tokens came.

    python -m bench.alone FOLDER --tokens 48

One prompt goes through `stream_generate`, several through mlx-lm's own batch generator; always the likeliest token.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import mlx_lm
from mlx_lm.generate import BatchGenerator

from bench.stories import story_prompts
from kafila_rendezvous.leaving import leave


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, required=True)
    options = parser.parse_args()
    loaded: Any = mlx_lm.load(str(options.folder))
    model, tokenizer = loaded[0], loaded[1]
    for line in sys.stdin:
        prompts = [
            tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
            for text in story_prompts(int(line))
        ]
        heard = one(model, tokenizer, prompts[0], options.tokens)
        if len(prompts) > 1:
            heard = several(model, prompts, options.tokens)
        print(json.dumps(heard), flush=True)


def one(model: Any, tokenizer: Any, prompt: list[int], tokens: int) -> list[list[float]]:
    """Seconds since it was asked for, of each token."""
    began = time.perf_counter()
    return [[time.perf_counter() - began for _ in mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=tokens)]]


def several(model: Any, prompts: list[list[int]], tokens: int) -> list[list[float]]:
    """The same, of each prompt."""
    generator: Any = BatchGenerator(model, max_tokens=tokens)
    began = time.perf_counter()
    times: dict[int, list[float]] = {uid: [] for uid in generator.insert(prompts)}
    while any(len(heard) < tokens for heard in times.values()):
        _, answered = generator.next()
        for token in answered:
            times[token.uid].append(time.perf_counter() - began)
    return list(times.values())


if __name__ == "__main__":
    main()
    leave(0)
