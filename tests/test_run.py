"""`make test` asks only the modules that mark tests for the tests that are marked, and no marked one is elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import names_soak
from tests.run import TREE, marked


def test_modules_that_mark_a_test_are_found(tmp_path: Path) -> None:
    texts = {
        "test_all.py": "pytestmark = pytest.mark.real\n",
        "deep/test_one.py": "@pytest.mark.root\ndef test_it(): ...\n",
        "deep/test_set.py": "SOME = pytest.param(1, marks=[pytest.mark.real, pytest.mark.soak])\n",
        "real/test_all.py": "pytestmark = pytest.mark.real\n",
        "real/test_gpu.py": "pytestmark = pytest.mark.real\n",
        "deep/test_other.py": "@pytest.mark.soak\ndef test_it(): ...\n",
        "deep/helper.py": "MARK = pytest.mark.real\n",
    }
    for name, text in texts.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert marked(tmp_path) == ["tests/deep/test_one.py", "tests/deep/test_set.py", "tests/real", "tests/test_all.py"]


@pytest.mark.parametrize("mark", ["real", "root"])
def test_a_test_that_is_marked_from_elsewhere_stops_the_run(tmp_path: Path, mark: str) -> None:
    (tmp_path / "helper.py").write_text(f"import pytest\nMARK = pytest.mark.{mark}\n")
    (tmp_path / "test_some.py").write_text("from helper import MARK\n@MARK\ndef test_it():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  real\n  root\n  soak\n")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_some.py"], cwd=tmp_path, check=False, timeout=300,
        env={"PYTHONPATH": f"{TREE}:{tmp_path}", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "test_some.py: mark its tests in the module itself" in done.stderr


@pytest.mark.parametrize("marks", ["soak", "real and soak", "(real or root) and soak"])
def test_long_forms_run_where_soak_is_asked_for(marks: str) -> None:
    assert names_soak(marks)


def test_make_test_runs_no_long_form() -> None:
    said = [TREE / "tests/run.py", TREE / "Makefile"]
    marks = {
        marks for path in said for marks in re.findall(r"""["']([^"']*\bnot soak\b[^"']*)["']""", path.read_text())
    }
    assert len(marks) >= 4
    assert not any(map(names_soak, ["", "real", *marks]))
