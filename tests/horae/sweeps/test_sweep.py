"""Sweep files, phases, the arbiter's hook."""

from __future__ import annotations

import json
from typing import Any

import pytest

from horae.sweeps.schedules import hyperband, successive_halving
from horae.sweeps.sweep import read
from horae.sweeps.variable import VARIABLE, from_text, said
from policy.model import App, BadInput, Phase
from policy.text.textform import load

GOOD = """
name: tune
command: [python, train.py, --lr, "{lr}", --out, "{job}", "{{literal}}"]
gpus: {min: 1, max: 4}
checkpoint: ck/{job}
parameters:
  lr: [0.1, 0.03, 0.01, 0.003]
scheduler: {kind: successive-halving, iterations: 100}
"""


def jobs(text: str) -> list[dict[str, Any]]:
    return read(load(text, "sweep.yaml"))


def test_halving_phases_cost_about_the_same() -> None:
    assert successive_halving(8, 100) == (Phase(8, 100), Phase(4, 200), Phase(2, 400), Phase(1, 800))
    assert successive_halving(1, 5) == (Phase(1, 5),)
    for bad in ((0, 1.0, 2), (4, 0.0, 2), (4, 1.0, 1)):
        with pytest.raises(ValueError, match="needs"):
            successive_halving(*bad)


def test_hyperband_has_the_brackets_of_its_paper() -> None:
    """JMLR 2018, the example of 81 iterations and eta 3: (jobs, iterations reached) by bracket."""
    reached = []
    for bracket in hyperband(81, 3):
        total, rows = 0.0, []
        for phase in bracket:
            total += phase.iterations
            rows.append((phase.jobs, total))
        reached.append(rows)
    assert reached[0] == [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)]
    assert reached[1] == [(34, 3), (11, 9), (3, 27), (1, 81)]
    assert reached[2] == [(15, 9), (5, 27), (1, 81)]
    assert reached[3] == [(8, 27), (2, 81)]
    assert reached[4] == [(5, 81)]


def test_a_grid_is_one_job_a_combination() -> None:
    made = jobs(GOOD)
    assert [j["name"] for j in made] == ["tune-0", "tune-1", "tune-2", "tune-3"]
    assert made[1]["command"] == ["python", "train.py", "--lr", "0.03", "--out", "tune-1", "{literal}"]
    assert made[1]["checkpoint"] == "ck/tune-1"
    assert {j["app"] for j in made} == {"tune"}
    assert made[0]["iterations"] == 700
    app = from_text("tune", made[0]["env"][VARIABLE])
    assert app == App("tune", "successive-halving", None, None, (Phase(4, 100), Phase(2, 200), Phase(1, 400)))
    assert json.loads(made[2]["env"][VARIABLE])["parameters"] == {"lr": 0.01}


def test_samples_are_drawn_once_and_for_all() -> None:
    text = GOOD.replace("lr: [0.1, 0.03, 0.01, 0.003]", "lr: {low: 0.001, high: 0.1, log: true}") + "samples: 5\n"
    first, again = jobs(text), jobs(text)
    assert first == again
    assert len({j["command"][3] for j in first}) == 5
    assert jobs(text + "seed: 1\n") != first


def test_hyperband_is_one_app_a_bracket() -> None:
    text = GOOD.replace("successive-halving, iterations: 100", "hyperband, iterations: 9, eta: 3")
    made = jobs(text)
    assert {j["app"] for j in made} == {"tune-2", "tune-1", "tune-0"}
    assert len(made) == 9 + 5 + 3
    assert len({j["name"] for j in made}) == len(made)
    assert {j["iterations"] for j in made} == {9.0}


@pytest.mark.parametrize(
    ("old", "new", "words", "line"),
    [
        ("kind: successive-halving", "kind: random", "scheduler.kind", 8),
        ("iterations: 100", "iterations: 0", "scheduler.iterations", 8),
        ("{lr}", "{rate}", "cannot be filled in", 3),
        ("[0.1, 0.03, 0.01, 0.003]", "[]", "no values", 7),
        ("[0.1, 0.03, 0.01, 0.003]", "{low: 1, high: 2}", "a range has no grid", 7),
        ("[0.1, 0.03, 0.01, 0.003]", "{low: 3, high: 2}", "low 3.0 is above high 2.0", 7),
        ("name: tune", "nam: tune", "unknown key", 2),
        ("max: 4", "max: 0", "gpus", 4),
    ],
)
def test_mistakes_are_shown_with_their_line(old: str, new: str, words: str, line: int) -> None:
    with pytest.raises(BadInput) as caught:
        jobs(GOOD.replace(old, new))
    assert words in str(caught.value)
    assert "sweep.yaml" in str(caught.value)
    assert caught.value.line == line
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"phases": [[0, 1]], "budget": null, "demand_max": null, "scheduler": "x"}',
     '{"phases": [[1, -1]], "budget": null, "demand_max": null, "scheduler": "x"}',
     '{"phases": "ab", "budget": null, "demand_max": null, "scheduler": "x"}'],
)  # fmt: skip
def test_a_variable_set_to_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        from_text("a", text)


@pytest.mark.parametrize("parameters", ['{"a": NaN}', '{"a": 1e999}', '{"a": [1]}', "[1]", "null"])
def test_a_setting_that_no_sweep_chooses_is_none(parameters: str) -> None:
    """Answers are made of it: one that is no JSON was a failure for whoever asked for the apps."""
    text = '{"phases": [], "budget": null, "demand_max": null, "scheduler": "external", "parameters": %s}'
    found = said(text % parameters)
    assert found.app is not None and not found.parameters
    assert said(text % '{"a": 0.1, "b": "x", "c": true}').parameters == {"a": 0.1, "b": "x", "c": True}


def test_lists_that_no_scheduler_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail(f"{len(text)} letters were read"))
    for text in ("[" + "[]," * 20_000 + "1]", '{"a":' * 10_000, '["' + '\\"' * 30_000 + '",' + "[" * 10_000):
        assert said(text).app is None
