"""Mini-clusters on one machine: what `horae lab up|down|status|demo KIND` drives.

A lab is an entry point of the group `horae.labs`: a class without arguments that follows `Lab`. What every lab
needs is here: the request and its checks, the folder, the Docker engine (`engine.py`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from policy.model import EMPTY, BadInput, Gpus, GpuType

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


@dataclass(frozen=True, slots=True)
class LabRequest:
    """What cluster to make. `gpus`: kinds of node, dealt out in blocks over `nodes`."""

    name: str
    release: str = ""  #: empty: the lab's own default
    nodes: int = 4
    gpus: tuple[tuple[GpuType, Gpus], ...] = (("v100", 4), ("k80", 4))
    engine: str = ""  #: "docker", or "process": plain processes of the caller; empty: the lab's choice
    folder: Path = Path()
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    features: frozenset[str] = frozenset()  #: of those that the lab has: "kerberos", "standbys"

    def node_kinds(self) -> tuple[tuple[str, GpuType, Gpus], ...]:
        """(node name, type, GPUs) of n1, n2, ...: 8 nodes of `v100:4,k80:4` are four of each, in this order."""
        kinds = len(self.gpus)
        named = []
        for index in range(self.nodes):
            kind, count = self.gpus[min(index * kinds // self.nodes, kinds - 1)]
            named.append((f"n{index + 1}", kind, count))
        return tuple(named)


@dataclass(frozen=True, slots=True)
class LabState:
    name: str
    up: bool
    text: str  #: for people
    facts: Mapping[str, Any] = field(default_factory=lambda: EMPTY)  #: how to reach it: options for `connect`, ports


class Lab(Protocol):
    releases: tuple[str, ...]
    engines: tuple[str, ...]
    features: tuple[str, ...]

    def up(self, request: LabRequest) -> LabState: ...

    def down(self, request: LabRequest) -> LabState: ...

    def status(self, request: LabRequest) -> LabState: ...

    def demo(self, request: LabRequest) -> int:
        """Run real elastic training on the lab, which is brought up when it is not; an exit code."""
        ...


def labs() -> dict[str, Lab]:
    return {point.name: point.load()() for point in entry_points(group="horae.labs")}


def parse_gpus(text: str) -> tuple[tuple[GpuType, Gpus], ...]:
    """`v100:4,k80:4` -> (("v100", 4), ("k80", 4)). Raises BadInput."""
    kinds = []
    for item in text.split(","):
        kind, colon, count = item.strip().partition(":")
        if not colon or not re.fullmatch(r"[a-z][\w]*", kind) or not count.isdigit() or not 1 <= int(count) <= 16:
            raise BadInput(f"'{item}' is not TYPE:COUNT", where="--gpus", value=text, remedy="for example v100:4,k80:4")
        kinds.append((kind, int(count)))
    return tuple(kinds)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"'{name}' is not a name for a lab", where="--name", value=name, remedy="a-z, 0-9 and -")
    return name


def say(text: str) -> None:
    """How a lab tells people what takes its time."""
    print(text, file=sys.stderr, flush=True)


def default_folder() -> Path:
    """Where labs keep what they build and download, for the user who runs them."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "horae" / "lab"


def containers(kind: str) -> Path:
    """The folder of a lab's Dockerfiles: of the checkout, or as the wheel carries it."""
    here = Path(__file__).resolve().parent
    for folder in (here.parent.parent / "containers" / kind, here.parent / "_containers" / kind):
        if folder.is_dir():
            return folder
    raise BadInput(f"this installation carries no containers/{kind}", remedy="install Horae from its wheel or checkout")
