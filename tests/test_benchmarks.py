"""Every benchmark can be started: what it measures is still there under the names that it knows."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import _figures, _moved
from benchmarks._figures import FIGURES, Figure

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_names_are_there(name: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {name}"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.benchmark}: {figure.what}")
def test_a_figure_of_the_page_is_in_its_result(figure: Figure) -> None:
    found = _figures.result(figure.benchmark)
    assert found, f"benchmarks/results/{figure.benchmark}.json"
    assert list(_figures.within(found, figure.path))


def test_numbers_are_found_by_keys_stars_and_last_rows() -> None:
    result = {"a": {"x": {"s": 1}, "y": {"s": 2.5, "t": 3}}, "rows": [{"s": 7}, {"s": 8}], "yes": True}
    assert list(_figures.within(result, ("a", "*", "s"))) == [("x", 1.0), ("y", 2.5)]
    assert list(_figures.within(result, ("rows", "s"))) == [("", 8.0)]
    assert list(_figures.within(result, ("yes",))) == []
    assert list(_figures.within(result, ("a", "z", "s"))) == []


def test_each_thing_that_grows_has_its_own_picture() -> None:
    jobs = [{"jobs": 10, "gpus": 8, "play_s": 0.1}, {"jobs": 20, "gpus": 8, "play_s": 0.3}]
    gpus = [{"jobs": 10, "gpus": 8, "play_s": 0.1}, {"jobs": 10, "gpus": 16, "play_s": 0.2}]
    found = {"largest": {"fifo": jobs, "las": jobs[:1]}, "gpus": {"fifo": gpus}, "provenance": {"machine": {}}}
    hook = runpy.run_path(str(FOLDER.parent / "docs" / "_hooks" / "benchmarks.py"))
    assert [curve[:2] for curve in hook["curves"](found)] == [("jobs", "largest fifo"), ("gpus", "gpus fifo")]
    titles = [line for line in hook["drawn"]("simulator", found) if line.startswith("<title>")]
    assert titles == [f"<title>simulator: seconds over {axis}, logarithmic</title>" for axis in ("jobs", "gpus")]


def test_what_moved_is_told_with_its_direction_and_noise_is_not() -> None:
    less, more = Figure("b", "w", ()), Figure("b", "w", (), less_is_better=False)
    assert _moved.moved(less, 1.0, 1.05) == ""
    assert (_moved.moved(less, 1.0, 1.2), _moved.moved(more, 1.0, 1.2)) == ("worse", "better")
    assert (_moved.moved(less, 1.0, 0.5), _moved.moved(less, 0.0, 0.5)) == ("better", "worse")


def test_a_result_that_was_measured_beside_other_work_says_so() -> None:
    def result(commit: str, load: float | None) -> dict[str, object]:
        return {"provenance": {"commit": commit, "machine": {"load": load}}}

    assert _figures.doubt(result("abc1234", 0.4)) == ""
    assert _figures.doubt(result("abc1234", 20.0)) == "measured at a load of 20"
    assert _figures.doubt(result("abc1234-dirty", 0.4)) == "measured with changes that are in no commit"
    assert _figures.doubt({}) == "no word of the machine's load"
