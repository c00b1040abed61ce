"""The judge of found against labelled, and the labels themselves."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.profiler.score import GROUPS, LABELS, judge_log, matches

NAMES = sorted(p.name for p in LABELS.glob("*.yaml"))

LABEL: dict[str, Any] = {
    "runs": [
        {
            "lines": [1, 50],
            "iterations": {"first": 0, "last": 40, "total": {"any": [None, 50]}, "scope": "run", "unit": "iteration"},
            "epochs": None,
            "iteration_time": {"median": {"between": [0.1, 0.2]}, "source": {"any": ["printed", "timestamps"]}},
            "loss": {
                **{"name": "loss", "kind": "step", "axis": "iteration", "n": 5},
                **{"first": {"at": 0, "value": 3.0}, "last": {"value": 1.0}},
            },
            "failure": None,
        }
    ]
}
RIGHT: dict[str, Any] = {
    "lines": [1, 50],
    "iterations": {"first": 0, "last": 40, "total": 50, "scope": "run", "unit": "iteration"},
    "iteration_time": {"median": 0.15, "source": "printed"},
    "loss": {
        **{"name": "Loss", "kind": "step", "axis": "iteration", "n": 5},
        **{"first": [0, 3.0], "last": [40, 1.001], "parts": []},
    },
}


def judged(**changes: Any) -> tuple[int, list[str]]:
    run = {**copy.deepcopy(RIGHT), **changes}
    tally = judge_log(LABEL, [run])
    return tally.right, tally.off


def test_what_is_right_is_right() -> None:
    right, wrong = judged()
    assert wrong == []
    assert right == 1 + 5 + 2 + 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"iterations": {**RIGHT["iterations"], "last": 41}}, "iterations.last"),
        ({"iteration_time": {"median": 0.25, "source": "printed"}}, "iteration_time.median"),
        ({"iteration_time": {"median": 0.15, "source": "bar"}}, "iteration_time.source"),
        ({"loss": {**RIGHT["loss"], "first": [1, 3.0]}}, "loss.first"),
        ({"loss": {**RIGHT["loss"], "last": [40, 1.1]}}, "loss.last"),
        ({"loss": {**RIGHT["loss"], "parts": ["a"]}}, "loss.parts"),
        ({"ranks": 8}, "ranks"),
        ({"epochs": {"last": 3}}, "epochs"),
        ({"failure": {"kind": "killed", "line": 9}}, "failure.kind"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    right, wrong = judged(**changes)
    assert len(wrong) == 1
    assert wrong[0].startswith(words)
    assert right >= 12


def test_a_run_too_many_or_too_few_is_wrong() -> None:
    nothing = judge_log(LABEL, [])
    assert nothing.right == 0
    assert not nothing.wrong
    assert len(nothing.missing) >= 13
    doubled = judge_log(LABEL, [RIGHT, {**RIGHT, "lines": [51, 90]}])
    assert "runs: found 2, labelled 1" in doubled.wrong
    assert sum("of a run that is none" in w for w in doubled.wrong) == 3


def test_alternatives_and_ranges() -> None:
    assert matches({"any": [None, 3]}, None)
    assert matches({"any": [None, {"between": [2, 4]}]}, 3)
    assert not matches({"between": [2, 4]}, None)
    assert matches(100.0, 102.9, "median")
    assert not matches(100.0, 103.1, "median")
    assert not matches(100, 101, "last")


def test_every_log_has_its_label() -> None:
    assert len(NAMES) == 52


@pytest.mark.parametrize("name", NAMES)
def test_a_label_says_what_labels_say(name: str) -> None:
    label = yaml.safe_load((LABELS / name).read_text(encoding="utf-8"))
    assert label["format"].strip()
    assert label["family"]
    assert "traps" in label
    for run in label["runs"]:
        first, last = run["lines"]
        assert 1 <= first <= last
        known = {"lines", "validation", "ranks", "gpus", "failure", *GROUPS}
        assert set(run) <= known
        for group in ("iterations", "epochs", "iteration_time", "epoch_time", "throughput", "loss"):
            assert group in run, "a label says of every part whether the log tells it"
        loss = run["loss"]
        for end in ("first", "last") if isinstance(loss, dict) and "any" not in loss else ():
            points = loss[end].get("any", [loss[end]])
            assert all(first <= p["line"] <= last for p in points)
