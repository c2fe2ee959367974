"""`platform_wheel.py WHEEL BINARY FOLDER`: the wheel of one platform, made of the pure one and the built Ollama.

It brings the binary as the command `kafila`, with nothing between it and who types it, its manual pages, completions
for shells, and its bill of materials. Where the binary needs no more than a manylinux policy allows, the name says so
(auditwheel decides, run by KAFILA_AUDITWHEEL); else it says the plain platform. Prints the path of what it made.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMMAND = "kafila"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # a zip file knows none before
POLICY = re.compile(r'"(manylinux_\d+_\d+_\w+)"')
MACOS = re.compile(r"minos (\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a wheel."""

    name: str
    content: bytes
    executable: bool = False

    @property
    def record(self) -> str:
        """Its line in RECORD."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(self.content).digest()).rstrip(b"=").decode()
        return f"{self.name},sha256={digest},{len(self.content)}"


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    pure, binary, folder = map(Path, sys.argv[1:])
    print(make(pure, binary, folder))


def make(pure: Path, binary: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        command = stripped(binary, Path(scratch) / COMMAND)
        added = [*brought(pure, command)]
        plain = written(pure, added, plain_tag(command), Path(scratch))
        tag = policy_tag(plain)
        return written(pure, added, tag or plain_tag(command), folder)


def stripped(binary: Path, command: Path) -> Path:
    """The binary without what only a debugger reads, half of its size; called as packages call it."""
    shutil.copy(binary, command)
    subprocess.run(["strip", *(["-x"] if sys.platform == "darwin" else []), str(command)], check=True)
    return command


def brought(pure: Path, command: Path) -> Iterator[Entry]:
    """What the platform's wheel has beside the pure one's files."""
    data, info = folders(pure)
    yield Entry(f"{data}/scripts/{COMMAND}", command.read_bytes(), executable=True)
    with tempfile.TemporaryDirectory() as pages:
        subprocess.run([str(command), "manual", pages], check=True)
        for file in sorted(Path(pages, "share").rglob("*")):
            if file.is_file():
                yield Entry(f"{data}/data/{file.relative_to(pages).as_posix()}", file.read_bytes())
    for name, module in scripts(pure):
        yield Entry(f"{data}/data/share/man/man1/{name}.1", manual(name, help_of(module)).encode())
    bill = Path(os.environ.get("KAFILA_BILL", ""))
    if bill.is_file():
        yield Entry(f"{info}/sboms/{bill.name}", bill.read_bytes())


def scripts(pure: Path) -> Iterator[tuple[str, str]]:
    """The pure wheel's own commands, each with its module."""
    with zipfile.ZipFile(pure) as source:
        text = source.read(f"{folders(pure)[1]}/entry_points.txt").decode()
    for name, place in re.findall(r"^(\S+) = (\S+):main$", text, re.MULTILINE):
        yield name, place.removesuffix(".__main__")


def help_of(module: str) -> str:
    command = [sys.executable, "-m", module, "--help"]
    width = {**os.environ, "COLUMNS": "80"}
    told = subprocess.run(command, env=width, check=True, capture_output=True, text=True).stdout
    return told.replace(str(Path.home()), "~")  # not the home of who builds


def manual(name: str, told: str) -> str:
    """A manual page that says what the command's help does, as man(7) reads it."""
    purpose = next(block for block in told.split("\n\n")[1:] if block.strip())
    lines = told.replace("\\", "\\e").replace("-", "\\-").splitlines()
    body = "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in lines)
    first = " ".join(purpose.split()).rstrip(".")
    return f'.TH {name.upper()} 1 "" "Kafila" "Kafila"\n.SH NAME\n{name} \\- {first}\n.SH HELP\n.nf\n{body}\n.fi\n'


def written(pure: Path, added: list[Entry], tag: str, folder: Path) -> Path:
    """A wheel with what is added, called by its tag. The same files make the same wheel."""
    _, info = folders(pure)
    with zipfile.ZipFile(pure) as source:
        kept = [Entry(name, source.read(name)) for name in source.namelist() if name != f"{info}/RECORD"]
    entries = [retagged(one, tag) if one.name == f"{info}/WHEEL" else one for one in kept] + added
    record = "\n".join([*(one.record for one in entries), f"{info}/RECORD,,", ""])
    path = folder / pure.name.replace("py3-none-any", f"py3-none-{tag}")
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for one in [*entries, Entry(f"{info}/RECORD", record.encode())]:
            place = zipfile.ZipInfo(one.name, EARLIEST)
            place.external_attr = (stat.S_IFREG | (0o755 if one.executable else 0o644)) << 16
            place.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(place, one.content)
    return path


def retagged(entry: Entry, tag: str) -> Entry:
    """WHEEL of a platform: its files belong beside other binaries, and it is for that one alone."""
    text = entry.content.decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    return Entry(entry.name, text.replace("Tag: py3-none-any", f"Tag: py3-none-{tag}").encode())


def folders(pure: Path) -> tuple[str, str]:
    """Names of the folders in the wheel for what is installed elsewhere, and for what is said about it."""
    name = "-".join(pure.name.split("-")[:2])
    return f"{name}.data", f"{name}.dist-info"


def plain_tag(command: Path) -> str:
    """This platform's, as pip names it: on macOS from the oldest system that the binary starts on."""
    if sys.platform != "darwin":
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    said = subprocess.run(["otool", "-l", str(command)], check=True, capture_output=True, text=True).stdout
    oldest = MACOS.search(said)
    if oldest is None:
        sys.exit("the binary does not say on which macOS it starts")
    return f"macosx_{oldest[1]}_{0 if int(oldest[1]) > 10 else oldest[2]}_{platform.machine()}"


def policy_tag(wheel: Path) -> str | None:
    """The policy that auditwheel finds the wheel to keep; None where there is none, or no auditwheel."""
    auditwheel = os.environ.get("KAFILA_AUDITWHEEL")
    if not auditwheel:
        return None
    said = subprocess.run([auditwheel, "show", str(wheel)], capture_output=True, text=True)
    found = POLICY.search(" ".join(said.stdout.split()).partition("system-provided")[0])
    return found[1] if found else None


if __name__ == "__main__":
    main()
