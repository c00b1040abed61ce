"""The folder `horae/elastic` by itself, and adapters' halves for it: old Pythons, no dependencies, copied anywhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.horae.elastic.exec_job import ELASTIC, ROOT
from tests.horae.elastic.pythons import pythons

HALVES = [ROOT / "slurm_plugin" / "on_node", ROOT / "yarn_bridge" / "on_node"]
SOURCES = sorted(path for folder in (ELASTIC, *HALVES) for path in folder.rglob("*.py"))
#: What an adapter may import, lazily: inside a function of its own module under `frameworks`.
FRAMEWORKS = {
    "fsspec",
    "torch",
    "keras",
    "tensorflow",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "jax",
    "numpy",
}


def test_python_37_can_read_all_of_it() -> None:
    found = subprocess.run(
        [str(Path(sys.executable).with_name("vermin")), "-t=3.7-", "--no-tips", "--violations", *map(str, SOURCES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    for path in SOURCES:
        ast.parse(path.read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_standard_library_is_imported(path: Path) -> None:
    tree = ast.parse(path.read_text())
    lazily = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""] if node.module != "horae" else [f"horae.{alias.name}" for alias in node.names]
        for name in names:
            top = name.partition(".")[0]
            if top in FRAMEWORKS and id(node) in lazily:
                continue
            if ELASTIC not in path.parents and re.match(r"horae\.elastic(\.|$)", name):
                continue
            assert top in sys.stdlib_module_names, f"{path.name}:{node.lineno} imports {name}"


def test_a_copy_under_another_name_trains_and_supervises(tmp_path: Path) -> None:
    shutil.copytree(ELASTIC, tmp_path / "vendored", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "train.py").write_text(
        "import vendored\n"
        "for step in vendored.Training(steps=3, global_batch=4):\n"
        "    step.report(0.5)\n"
        "print('done', vendored.Environment().world)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", str(tmp_path / "vendored"), "--gpus", "2", "--checkpoint", "ckpt"),
            *("--", sys.executable, str(tmp_path / "train.py")),
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0: [horae] step=3/3" in done.stdout
    assert done.stdout.count("done 2") == 2


@pytest.mark.parametrize("python", pythons())
def test_it_runs_under_every_python_at_hand(tmp_path: Path, python: str) -> None:
    shutil.copytree(ELASTIC, tmp_path / "elastic", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "train.py").write_text(
        "import elastic, os, signal, time\n"
        "save = lambda folder: open(folder + '/x', 'w').close()\n"
        "training = elastic.Training(steps=10**6, global_batch=4, save=save, load=lambda folder: None)\n"
        "for step in training:\n"
        "    time.sleep(0.01)\n"
        "    if step.number == 5 and training.rank == 1: os.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    done = subprocess.run(
        [
            *(python, "-I", "-S", str(tmp_path / "elastic"), "--gpus", "2", "--checkpoint", "ckpt"),
            *("--", python, str(tmp_path / "train.py")),
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 86, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr


def test_no_framework_is_loaded_with_the_sdk() -> None:
    code = "import sys, horae.elastic; horae.elastic.Training; print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    found = subprocess.run(
        [sys.executable, "-c", code, *sorted(FRAMEWORKS)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "what shall run"),
        (["--gate", "g", "--", "true"], "--gate needs --member"),
        (["--stop-signal", "KILL", "--gpus", "1", "--", "true"], "neither USR1 nor TERM"),
        (["--checkpoint", "ftp://b", "--gpus", "1", "--", "true"], "no checkpoint store for ftp"),
        (["--job", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ELASTIC), *arguments],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert complaint in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
