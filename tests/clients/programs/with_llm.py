"""The program `llm` with its plug-in for Ollama, by the words that are typed in a terminal."""

import io
import os
import tempfile
from contextlib import redirect_stdout

from llm.cli import cli
from telling import arguments, tell

URL, MODEL = arguments()


def run(*words: str) -> str:
    """What it shows. One process for all: it takes seconds to start."""
    shown = io.StringIO()
    with tempfile.TemporaryDirectory() as home, redirect_stdout(shown):
        os.environ |= {"OLLAMA_HOST": URL, "LLM_USER_PATH": home}
        cli.main(words, prog_name="llm", standalone_mode=False)
    return shown.getvalue()


tell(
    {
        "prompt": lambda: run(
            "-m", MODEL, "-o", "temperature", "0", "-o", "num_predict", "4", "What is the capital of France?"
        ),
        "prompt with a context": lambda: run("-m", MODEL, "-o", "num_ctx", "512", "-o", "num_predict", "4", "Hello"),
        "models": lambda: MODEL in run("models"),
    }
)
