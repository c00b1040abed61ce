"""The locks beside this file: whether they fit `pyproject.toml`, and which of their lines one Python needs.

python -m supply.locks check
python -m supply.locks select supply/slurm.txt 3.12 x86_64       the requirements for that Python, without markers
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    from packaging.requirements import Requirement
except ModuleNotFoundError:  # a bare Python with pip: pip brings its own copy
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment,unused-ignore]

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: extras that each lock holds, beside what Horae cannot do without
LOCKS = {"lock.txt": ("dev",), "slurm.txt": ("slurm", "top", "zstd")}
_VIA = re.compile(r"^ {4}# +(?:via )?(\S.*)$")


@dataclass
class Pin:
    """One version of one package, for the Pythons that its marker names."""

    requirement: Any
    hashes: list[str] = field(default_factory=list)
    via: list[str] = field(default_factory=list)  #: packages that need it; `horae (pyproject.toml)` is ours

    @property
    def name(self) -> str:
        return plain(self.requirement.name)

    @property
    def version(self) -> str:
        return str(self.requirement.specifier).removeprefix("==")

    def fits(self, python: str, machine: str = "x86_64") -> bool:
        marker = self.requirement.marker
        return marker is None or bool(marker.evaluate(environment(python, machine)))


def read(path: Path) -> list[Pin]:
    """Raises ValueError, with file and line, for what is neither a pinned version nor one of its hashes."""
    pins: list[Pin] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip().removesuffix("\\").strip()
        via = _VIA.match(line)
        if via and pins:
            pins[-1].via += [] if via[1] == "via" else [via[1]]
        elif text.startswith("--hash=sha256:") and pins:
            pins[-1].hashes.append(text.removeprefix("--hash=sha256:"))
        elif text and not text.startswith("#"):
            if text.startswith("-") or "://" in text or "==" not in text:
                raise ValueError(f"{path.name}:{number}: not a pinned version: {text}")
            pins.append(Pin(Requirement(text)))
    return pins


def environment(python: str, machine: str = "x86_64") -> dict[str, str]:
    """What markers ask for, on CPython on Linux."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.99",  # a marker that tells patch releases apart means the old ones
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }


def wanted(extras: Sequence[str]) -> dict[str, Any]:
    """What `pyproject.toml` asks for with these extras, those that extras name included: name -> requirement."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    optional: Mapping[str, list[str]] = project["optional-dependencies"]
    waiting = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    found: dict[str, Any] = {}
    while waiting:
        requirement = Requirement(waiting.pop())
        if plain(requirement.name) == plain(project["name"]):
            waiting += [line for extra in requirement.extras for line in optional[extra]]
        else:
            found[plain(requirement.name)] = requirement
    return found


def check() -> Iterator[str]:
    """What is wrong, in words."""
    for name, extras in LOCKS.items():
        pins = read(HERE / name)
        asked = wanted(extras)
        for python in PYTHONS:
            there = {pin.name: pin for pin in pins if pin.fits(python)}
            for package, requirement in asked.items():
                pin = there.get(package)
                if pin is None:
                    yield f"{name} has no {package} for Python {python}"
                elif not requirement.specifier.contains(pin.version, prereleases=True):
                    yield f"{name} has {package} {pin.version}, and pyproject.toml asks for {requirement.specifier}"
        ours = {pin.name for pin in pins if any(each.startswith("horae") for each in pin.via)}
        yield from (f"{name} has {package}, which pyproject.toml does not ask for" for package in ours - set(asked))
    yield from _agreement()


def _agreement() -> Iterator[str]:
    """A package has one version (for one Python) in all locks, and hashes in each."""
    whole = {(pin.name, pin.version): pin for pin in read(HERE / "lock.txt")}
    known = {pin.name for pin in whole.values()}
    for name in ("lock.txt", "slurm.txt", "build.txt"):
        for pin in read(HERE / name):
            if not pin.hashes:
                yield f"{name} has no hash of {pin.name}"
            if pin.name in known and (pin.name, pin.version) not in whole:
                yield f"{name} has {pin.name} {pin.version}, lock.txt another version"


def select(path: Path, python: str, machine: str) -> Iterator[str]:
    for pin in read(path):
        if pin.fits(python, machine):
            yield f"{pin.requirement.name}=={pin.version} " + " ".join(f"--hash=sha256:{each}" for each in pin.hashes)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(words: Sequence[str]) -> int:
    if words and words[0] == "select" and len(words) == 4:
        print("\n".join(select(Path(words[1]), words[2], words[3])))
        return 0
    if list(words) != ["check"]:
        print(__doc__, file=sys.stderr)
        return 2
    faults = sorted(set(check()))
    for fault in faults:
        print(f"supply/{fault} (make lock)", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
