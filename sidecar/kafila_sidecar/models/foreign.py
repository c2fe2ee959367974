"""No code of a checkpoint's own is ever read, fetched or run: what can't be had without it is refused.

`auto_map`, by which publishers name code for transformers, asks for nothing here: of architectures mlx-lm's own code is
run, so the key is as good as absent. Tokenizers are another matter, see `runtime/text/loading.py`.
"""

from typing import Any

from kafila_sidecar.errors import Refused

CODE_KEYS = frozenset({"model_file", "trust_remote_code", "custom_pipelines", "custom_generate"})
"""Keys by which a checkpoint asks for code of its own to be run, wherever in its files they stand."""


def refuse_foreign_code(content: Any, where: str) -> None:
    """Raises Refused when a file's content (JSON, at any depth) asks for code of the checkpoint's own.

    where: the checkpoint and the file, for people.
    """
    unread = [content]
    while unread:
        value = unread.pop()
        if isinstance(value, list):
            unread += value
        elif isinstance(value, dict):
            asked = CODE_KEYS & {key for key, setting in value.items() if setting}
            if asked:
                raise Refused(f"{where} asks for code of its own ({min(asked)}), which is never run")
            unread += value.values()
