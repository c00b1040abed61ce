"""The worst lie that a search found under each policy (`benchmarks/strategy.py`) still brings no more than is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy import catalogue
from policy.text.instance import from_document
from policy.text.textform import Document
from policy.trials.lies import told
from policy.trials.strategy import gain

FILE = Path(__file__).parent / "worst_lies.jsonl"
TOLD = Path(__file__).parents[2] / "benchmarks" / "results" / "strategy.json"
CASES = [json.loads(line) for line in FILE.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["policy"] for case in CASES])
def test_the_worst_lie_found_brings_no_more_than_is_told(case: dict[str, Any]) -> None:
    snapshot = from_document(Document(case["instance"], str(FILE), "", 1))
    lie = next(lie for lie in told(snapshot, case["liar"]) if lie.what == case["lie"])
    found = gain(snapshot, case["liar"], lie, catalogue.find(case["policy"]), judged=True)
    assert found.gain <= case["gain"] + 0.01


def test_every_policy_is_told_of() -> None:
    worst = {
        name: max(one["gain"] for one in by.values()) for name, by in json.loads(TOLD.read_text())["worst"].items()
    }
    assert set(worst) == {name for name, entry in catalogue.entries().items() if catalogue.is_own(entry)}
    assert {case["policy"]: case["gain"] for case in CASES} == {n: g for n, g in worst.items() if g > 1e-6}
