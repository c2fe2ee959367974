"""The worked examples of the documents, as tests read them."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Document:
    """One document. An example is a fenced block whose first line says its kind and its name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._text = (ROOT / path).read_text(encoding="utf-8")

    def hex(self, name: str) -> bytes:
        """The bytes of an example: what follows `#` is explanation, a name in angle brackets stands for its example."""
        lines = (line.partition("#")[0].strip() for line in self._block("hex", name).splitlines())
        return b"".join(self.hex(line[1:-1]) if line.startswith("<") else bytes.fromhex(line) for line in lines)

    def json(self, name: str) -> Any:
        """The value of an example."""
        return json.loads(self.text(name))

    def text(self, name: str) -> str:
        """A JSON example as it is written."""
        return self._block("json", name)

    def commands(self) -> list[str]:
        """What it has people type, in order, fenced as `console`: the lines after `$ `."""
        fences = re.findall(r"^ *```console\n(.*?)^ *```$", self._text, re.DOTALL | re.MULTILINE)
        return [line.strip().removeprefix("$ ") for fence in fences for line in fence.splitlines() if "$ " in line[:8]]

    def mentioned(self) -> list[str]:
        """Every command of ours that it names, fenced or within a line, arguments and all."""
        named = r"(?:kafila|ollama|kafila-rendezvous|kafila-sidecar|kafila-plan)"
        within = re.findall(rf"`({named} [^`\n]+)`", self._text)
        fences = re.findall(r"^ *```(?:sh|console)?\n(.*?)^ *```$", self._text, re.DOTALL | re.MULTILINE)
        fenced = re.findall(rf"^ *(?:\$ )?(?:\S*/)?({named} (?:-|[a-z]+ ?[^ ])[^#\n]*)", "".join(fences), re.MULTILINE)
        return [line.strip() for line in within + fenced]

    def paths(self) -> list[str]:
        """The files of the project that it names, wildcards among them."""
        return re.findall(r"`([\w*-]+(?:/[\w*-]+)*\.(?:py|md|proto))[`]", self._text)

    def _block(self, kind: str, name: str) -> str:
        found = re.search(rf"^```{kind} {re.escape(name)}\n(.*?)^```$", self._text, re.DOTALL | re.MULTILINE)
        assert found is not None, f"{self._path} has no {kind} example {name}"
        return found[1]
