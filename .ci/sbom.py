"""Software bills of materials (CycloneDX 1.6, JSON) of what a release consists of.

`python FILE`: the Python package with everything in requirements/, hashes included: what it was tested with, and in the
scope "excluded" what only builds and tests it. `ollama BINARY FILE`: the modules that Go says are in the binary, and
the C and C++ that it doesn't know of.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
HEADERS = ("nlohmann-json3-dev", "libstb-dev")  # of Debian; compiled in
LLAMA = "github.com/ollama/ollama"  # the module that carries llama.cpp and ggml
ELSEWHERE = ("mlx-cpu", "mlx-metal")  # what mlx requires, on Linux and macOS

Component = dict[str, Any]


def main() -> None:
    match sys.argv[1:]:
        case ["python", file]:
            bill = python_bill()
        case ["ollama", binary, file]:
            bill = ollama_bill(Path(binary))
        case _:
            sys.exit("usage: sbom.py python FILE | sbom.py ollama BINARY FILE")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def bill_of(name: str, purl: str, components: list[Component], needs: dict[str, list[str]]) -> dict[str, Any]:
    """The document; its serial number follows from its contents, so that equal ones are equal."""
    root = {"type": "application", "name": name, "version": version(), "purl": purl, "bom-ref": purl}
    components.sort(key=lambda component: str(component["bom-ref"]))
    serial = uuid5(NAMESPACE_URL, json.dumps([root, components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": root},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(needs.items())],
    }


def version() -> str:
    return output([str(ROOT / ".ci/version")])


# ---- Python


def python_bill() -> dict[str, Any]:
    root = f"pkg:pypi/kafila@{version()}"
    own = own_requirements()
    shipped = closure(own)
    pinned = {name: pin for file in ("setup", "smollm2") for name, pin in pins(ROOT / f"requirements/{file}.txt")}
    components = [python_component(name, *pin, shipped=name in shipped) for name, pin in pinned.items()]
    refs = {component["name"]: str(component["bom-ref"]) for component in components}
    needs = {refs[name]: [refs[on] for on in requirements_of(name) if on in refs] for name in pinned}
    needs[root] = [refs[on] for on in own]
    return bill_of("kafila", root, components, needs)


def pins(file: Path) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Each line of a requirements file: name, version, SHA-256 of each of its files."""
    for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if found := re.match(r"([a-z0-9-]+)==(\S+)", line):
            yield found[1], (found[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", line))


def python_component(name: str, version: str, digests: list[str], *, shipped: bool) -> Component:
    purl = f"pkg:pypi/{name}@{version}"
    return {
        **{"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl},
        "scope": "required" if shipped else "excluded",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        **licences(name),
    }


def licences(name: str) -> dict[str, Any]:
    """What the package says of itself, where it says so in the standard form and lies here."""
    try:
        expression = metadata.metadata(name).get("License-Expression")
    except metadata.PackageNotFoundError:
        return {}
    return {"licenses": [{"expression": expression}]} if expression else {}


def own_requirements() -> set[str]:
    """Of the package, with what a member needs; what other systems leave out counts as well."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return names(Requirement(line) for line in (*project["dependencies"], *extras["node"]))


def requirements_of(name: str) -> set[str]:
    """Of an installed package; nothing for one that isn't installed on this machine."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return set()
    return names(one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate({"extra": ""}))


def names(requirements: Iterable[Requirement]) -> set[str]:
    return {str(canonicalize_name(one.name)) for one in requirements}


def closure(waiting: set[str]) -> set[str]:
    """These, and whatever they require in turn."""
    found, waiting = set(ELSEWHERE), set(waiting)
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting |= requirements_of(one)
    return found


# ---- The Ollama binary


def ollama_bill(binary: Path) -> dict[str, Any]:
    root = f"pkg:generic/kafila-ollama@{version()}"
    lines = output(["go", "version", "-m", str(binary)]).splitlines()
    toolchain = lines[0].rpartition(": go")[2]
    modules = [go_component(*module) for module in in_binary(lines)]
    components = [*modules, go_component("stdlib", toolchain, ""), *foreign_code()]
    return bill_of("kafila-ollama", root, components, {root: [str(one["bom-ref"]) for one in components]})


def in_binary(lines: Iterable[str]) -> list[tuple[str, str, str]]:
    """Path, version and checksum of each module; a replacement stands for what it replaces."""
    found: list[tuple[str, str, str]] = []
    for line in lines:
        match line.strip().split("\t"):
            case ["dep", path, version, *rest]:
                found.append((path, version, "".join(rest[:1])))
            case ["=>", path, version, *rest]:
                found[-1] = (path, version, "".join(rest[:1]))
    return found


def go_component(path: str, version: str, checksum: str) -> Component:
    """`checksum`: Go's own over the module's files ("h1:…"), as in go.sum."""
    purl = f"pkg:golang/{path}@{version}"
    component: Component = {"type": "library", "name": path, "version": version, "purl": purl, "bom-ref": purl}
    if checksum:
        component["properties"] = [{"name": "go:sum", "value": checksum}]
    return component


def foreign_code() -> list[Component]:
    """C and C++ that is compiled in and that no package manager of a language tells of."""
    folder = output(["go", "list", "-m", "-f", "{{.Dir}}", LLAMA], cwd=ROOT / "ollama")
    commit = re.search(r'LLAMA_COMMIT = "(\w+)"', (Path(folder) / "llama/build-info.cpp").read_text(encoding="utf-8"))
    llama = foreign("pkg:generic/llama.cpp", "llama.cpp", commit[1] if commit else "")
    return [llama, *(foreign(f"pkg:deb/debian/{name}", name, debian_version(name)) for name in HEADERS)]


def foreign(purl: str, name: str, version: str) -> Component:
    known = {"version": version} if version else {}
    purl += f"@{version}" if version else ""
    return {"type": "library", "name": name, "purl": purl, "bom-ref": purl, **known}


def debian_version(name: str) -> str:
    """Of what is installed, or was unpacked by `.ci/deps`; empty where it came in another way."""
    for archive in (ROOT / ".build/deps/archives").glob(f"{name}_*.deb"):
        return archive.name.split("_")[1].replace("%3a", ":")
    try:
        return output(["dpkg-query", "--show", "--showformat=${Version}", name])
    except (OSError, subprocess.CalledProcessError):
        return ""


def output(command: list[str], *, cwd: Path = ROOT) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
