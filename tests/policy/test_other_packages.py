"""Policies of other packages: found by their entry point, run like ours, and what they raise is told as theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.policy.commands import TREE, horae

ENTRIES = """\
from policy.contract import Entry

ENTRIES = [
    Entry("{name}", "The author's own.", "mylab.mine:decide", "-", "-"),
    Entry("{name}-broken", "Raises.", "mylab.mine:broken", "-", "-"),
]
"""
MINE = """\
from policy.model import Proposal


def decide(snapshot, options, context):
    return Proposal(allocation={})


def broken(snapshot, options, context):
    return 1 / 0
"""


def installed(folder: Path, entries: str, name: str = "own-idea") -> dict[str, str]:
    """A package as pip would leave it; the environment in which it is found."""
    (folder / "mylab").mkdir()
    (folder / "mylab/__init__.py").touch()
    (folder / "mylab/entries.py").write_text(entries.replace("{name}", name))
    (folder / "mylab/mine.py").write_text(MINE)
    info = folder / "mylab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[horae.policies]\nmylab = mylab.entries\n")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{TREE}", "TMPDIR": str(folder)}


def test_it_is_listed_and_decides(tmp_path: Path) -> None:
    environment = installed(tmp_path, ENTRIES)
    assert "own-idea" in horae(environment, "policies").stdout
    done = horae(environment, "decide", str(TREE / "docs/policies/example.yaml"), "--policy", "own-idea")
    assert done.returncode == 0, done.stderr


def test_what_it_raises_is_its_authors(tmp_path: Path) -> None:
    environment = installed(tmp_path, ENTRIES)
    done = horae(environment, "decide", str(TREE / "docs/policies/example.yaml"), "--policy", "own-idea-broken")
    assert done.returncode == 1
    assert "policy own-idea-broken: raised ZeroDivisionError: division by zero" in done.stderr
    assert f" at {tmp_path}/mylab/mine.py:9\n" in done.stderr
    assert "bug" not in done.stderr.replace("horae-bug-", "")
    (report,) = tmp_path.glob("horae-bug-*.txt")
    assert str(report) in done.stderr
    assert "1 / 0" in report.read_text()


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("import nothing_of_this_name\n", "its policies cannot be listed: ModuleNotFoundError"),
        ("ENTRIES = [1]\n", "ENTRIES holds int"),
        (ENTRIES.replace("{name}", "max-min", 1), "two policies are called max-min"),
    ],
)
def test_a_package_that_cannot_be_listed_is_named(tmp_path: Path, entries: str, said: str) -> None:
    done = horae(installed(tmp_path, entries), "policies")
    assert done.returncode == 3
    assert "mylab" in done.stderr
    assert said in done.stderr
