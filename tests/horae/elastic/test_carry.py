"""What is carried to nodes: `horae-exec` with every adapter's half, where nothing is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from horae.elastic import carry
from horae.elastic.supervisor import launchers
from tests.horae.elastic.exec_job import ELASTIC, ROOT
from tests.horae.elastic.pythons import pythons

SAYS = "def add_options(parser): parser.add_argument('--drum')\ndef run(options): return 7\n"


def run(*argv: str | Path, cwd: Path, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in argv], cwd=cwd, env={"PATH": os.environ["PATH"], **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def drummer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody else's distribution: a cluster's half called by `--drum`, or by $DRUM."""
    site = tmp_path / "site"
    half, told = site / "drums" / "on_node", site / "drums-1.dist-info"
    half.mkdir(parents=True)
    told.mkdir()
    (site / "drums" / "__init__.py").write_text("ARBITERS = 'and not for nodes'\n")
    (half / "__init__.py").write_text("")
    (half / "play.py").write_text(SAYS)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: drums\nVersion: 1\n")
    (told / "entry_points.txt").write_text(
        "[other]\n--drum = nobody\n[horae.launchers]\n--drum = drums.on_node.play\n$DRUM = drums.on_node.play\n"
    )
    monkeypatch.syspath_prepend(str(site))
    for name in ("drums", "drums.on_node"):  # of another test's folder, where that was looked for
        monkeypatch.delitem(sys.modules, name, raising=False)
    return site


def test_what_is_installed_is_found_by_name_and_the_first_on_the_path_counts(
    drummer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = launchers.known()
    assert {"$SLURM_JOB_ID", "--gate", "--slurm-task", "--drum", "$DRUM"} <= set(found)
    assert found["--drum"] == "drums.on_node.play"
    again = tmp_path / "again" / "drums-2.dist-info"
    again.mkdir(parents=True)
    (again / "entry_points.txt").write_text("[horae.launchers]\n--drum = drums.newer\n")
    monkeypatch.syspath_prepend(str(again.parent))
    assert launchers.known()["--drum"] == "drums.newer"


def test_a_stranger_cluster_plugs_in_where_it_is_installed(drummer: Path, tmp_path: Path) -> None:
    path = f"{drummer}:{ROOT}"
    words = (sys.executable, "-m", "horae.elastic")
    assert run(*words, "--drum", "x", "--", "true", cwd=tmp_path, PYTHONPATH=path) == (7, "")
    assert run(*words, "--", "true", cwd=tmp_path, PYTHONPATH=path, DRUM="1") == (7, "")
    code, said = run(*words, "--gpus", "1", "--", "echo", "here", cwd=tmp_path, PYTHONPATH=path, DRUM="1")
    assert (code, "here" in said) == (0, True), "this machine was asked for"
    code, said = run(*words, "--drums", "x", "--", "true", cwd=tmp_path, PYTHONPATH=path)
    assert (code, "unrecognized arguments: --drums" in said) == (2, True)


@pytest.mark.parametrize("python", pythons())
def test_the_carried_runs_under_every_python_with_nothing_installed(drummer: Path, tmp_path: Path, python: str) -> None:
    """Also where another Horae, or another package of an adapter's name, comes first on the path."""
    script = carry.carry(str(tmp_path / "nodes"))
    lib = tmp_path / "nodes" / carry.library(carry.files())
    assert (lib / "drums" / "__init__.py").read_text() == ""
    for name in ("horae", "drums", "elastic"):
        (tmp_path / "old" / name).mkdir(parents=True)
        (tmp_path / "old" / name / "__init__.py").write_text("raise RuntimeError('another')\n")
    for program in (lib, lib / "horae" / "elastic"):
        words = (python, "-S", program)
        code, said = run(*words, "--help", cwd=tmp_path, PYTHONPATH=str(tmp_path / "old"))
        assert (code, "--gate" in said, "--drum" in said, "--slurm-task" in said) == (0, True, True, False), said
        assert run(*words, "--drum", "x", "--", "true", cwd=tmp_path, PYTHONPATH=str(tmp_path / "old")) == (7, "")
    planted = tmp_path / "a folder of many"
    planted.mkdir()
    for name in ("horae", "argparse", "json", "signal", "importlib"):  # which somebody else may write
        (planted / f"{name}.py").write_text("raise RuntimeError('somebody else')\n")
    code, said = run("sh", script, "--", "true", cwd=planted, SLURM_JOB_ID="1")
    assert (code, said) == (64, "horae-exec: SLURM_JOB_NUM_NODES is not set: this is not a Slurm batch job\n")


def test_it_is_the_same_for_the_same_and_tells_its_table() -> None:
    files = carry.files()
    assert list(files.items()) == list(carry.files().items())
    table = json.loads(files[f"horae/elastic/supervisor/{launchers.TABLE}"])
    assert table["--gate"] == "yarn_bridge.on_node.worker"
    for module in table.values():
        assert f"{module.replace('.', '/')}.py" in files
    assert not [name for name in files if name.startswith(("slurm_plugin/adapter", "yarn_bridge/adapter", "policy"))]


def test_a_bare_copy_does_not_guess_which_cluster_it_is_on(tmp_path: Path) -> None:
    """It would run a job of many GPUs on one of them."""
    shutil.copytree(ELASTIC, tmp_path / "bare" / "elastic", ignore=shutil.ignore_patterns("__pycache__"))
    words = (sys.executable, "-I", "-S", tmp_path / "bare" / "elastic")
    code, said = run(*words, "--", "true", cwd=tmp_path, SLURM_JOB_ID="1")
    assert (code, "--gpus N" in said, "horae.elastic.carry" in said) == (64, True, True)
    assert run(*words, "--gpus", "1", "--", "true", cwd=tmp_path)[0] == 0


def test_a_half_that_is_not_there_is_told_without_a_traceback(drummer: Path, tmp_path: Path) -> None:
    (drummer / "drums" / "on_node" / "play.py").unlink()
    words = (sys.executable, "-m", "horae.elastic", "--drum", "x", "--", "true")
    code, said = run(*words, cwd=tmp_path, PYTHONPATH=f"{drummer}:{ROOT}")
    assert (code, said) == (64, "horae-exec: --drum is for drums.on_node.play, which cannot be loaded: "
                                "No module named 'drums.on_node.play'\n")  # fmt: skip


def test_a_half_that_is_in_no_package_is_refused(drummer: Path) -> None:
    (drummer / "alone.py").write_text(SAYS)
    (drummer / "drums-1.dist-info" / "entry_points.txt").write_text("[horae.launchers]\n--drum = alone\n")
    with pytest.raises(ModuleNotFoundError, match="no package alone"):
        carry.files()


def test_what_jobs_run_from_stays_when_another_version_is_carried(
    drummer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They load of it what they need first when they end, and a gang's tasks are started from there."""
    nodes, play = tmp_path / "nodes", drummer / "drums" / "on_node" / "play.py"
    script = carry.carry(str(nodes))
    before = {path: path.read_bytes() for path in nodes.rglob("*.py")}
    play.write_text(SAYS.replace("7", "8"))
    written = carry.write_atomic

    def cut(path: str, *words: object, **more: object) -> None:
        if path.endswith("play.py"):
            raise OSError("the disk is full")
        written(path, *words, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as full, pytest.raises(OSError, match="full"):
        full.setattr(carry, "write_atomic", cut)
        carry.carry(str(nodes))
    assert run("sh", script, "--drum", "x", "--", "true", cwd=tmp_path) == (7, "")
    assert carry.carry(str(nodes)) == script
    assert run("sh", script, "--drum", "x", "--", "true", cwd=tmp_path) == (8, "")
    assert {path: path.read_bytes() for path in before} == before


def test_the_command_says_where_it_wrote(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "horae.elastic.carry")
    assert run(*words, tmp_path / "x", cwd=ROOT) == (0, f"{tmp_path}/x/bin/horae-exec\n")
    assert run(*words, cwd=ROOT)[0] == 1
    assert run(*words, "/dev/null/x", cwd=ROOT)[0] == 1
