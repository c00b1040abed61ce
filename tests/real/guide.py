"""The blocks of the Slurm guide's installation, and how they are followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.real.slurm import ROOT

PAGE = ROOT / "docs/howto/slurm-install.md"
#: each block of it by its first word, as they are followed
STEPS = (
    "make", "tar", "/opt/horae/bin/python", "useradd", "horae", "install", "cluster:", "systemctl", "sed", "horae",
    "rm",
)  # fmt: skip
_BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    kind: str
    title: str
    text: str


def blocks() -> Iterator[Block]:
    for kind, title, text in _BLOCK.findall(PAGE.read_text()):
        yield Block(kind, title, text)
