"""The program `llm` with its plug-in for Ollama, as it is called in a terminal."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from telling import arguments, tell

URL, MODEL = arguments()


def run(*words: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run(
            [str(Path(sys.executable).with_name("llm")), *words],
            env={**os.environ, "OLLAMA_HOST": URL, "LLM_USER_PATH": home},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stdout


tell(
    {
        "prompt": lambda: run(
            "-m", MODEL, "-o", "temperature", "0", "-o", "num_predict", "4", "What is the capital of France?"
        ),
        "prompt with a context": lambda: run("-m", MODEL, "-o", "num_ctx", "512", "-o", "num_predict", "4", "Hello"),
        "models": lambda: MODEL in run("models"),
    }
)
