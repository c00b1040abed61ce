"""What real Slurms answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_plugin.clients.sealed import PLAIN

RECORDED = Path(__file__).parent / "recorded"


def whole(path: Path, names: Sequence[str]) -> str:
    """With the heading, which the recorded answers were asked to leave out."""
    text = path.read_text()
    return text if text.startswith(("JOBID", "NODELIST")) else PLAIN.field.join(names) + PLAIN.record + "\n" + text
