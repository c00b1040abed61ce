"""What is kept of a policy that failed: the instance file it failed on, the ideal bug report."""

from __future__ import annotations

import os
from pathlib import Path

from horae.arbiter.decide.policy_runner import Question
from policy.text import instance


def keep(folder: Path, question: Question) -> Path | None:
    """Write `failed-POOL.json` beside the journal, the newest failure over the one before; None where it cannot be."""
    path = folder / f"failed-{question.pool.replace('/', '_')}.json"
    try:
        text = instance.to_text(question.snapshot, "json")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
    except (OSError, ValueError):
        return None
    return path
