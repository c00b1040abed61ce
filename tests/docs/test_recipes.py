"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the tree: what they promise is so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: what a recipe needs of a checkout
NEEDED = ("policy", "profiler", "horae", "slurm_plugin", "yarn_bridge", "tests", "benchmarks", "containers", "supply",
          "docs", "pyproject.toml", "mkdocs.yml")  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recipes")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, made)
    return made


def run(tree: Path, what: str, *words: str) -> str:
    """What `horae ...`, or a module of this name, prints."""
    how = ["-c", "from horae.cli import main; raise SystemExit(main())"] if what == "horae" else ["-m", what]
    done = subprocess.run(
        [sys.executable, *how, *words], cwd=tree, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_policy_is_a_package_and_no_list_is_edited(tree: Path) -> None:
    """The one that `docs/policy-author.md` goes through."""
    page = (ROOT / "docs" / "policy-author.md").read_text()
    function, listed = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1:3]
    (tree / "policy" / "shortest").mkdir()
    for name, text in (("__init__", ""), ("shortest", function), ("entries", listed)):
        (tree / "policy" / "shortest" / f"{name}.py").write_text(text)
    assert "shortest" in run(tree, "horae", "policies")
    decided = run(
        tree, "horae", "decide", "docs/policies/example.yaml", "--policy", "shortest", "--set", "most_running=1"
    )
    assert "jobs are shorter" in decided
    held = ["test_every_policy", "test_never_fitting", "test_hard_instances"]
    told = run(tree, "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/policy/{name}.py" for name in held),
               "tests/docs/test_architecture.py", "-k", "shortest or architecture or catalogue")  # fmt: skip
    assert int(re.findall(r"(\d+) passed", told)[0]) > 30, told
    paged = "import sys; sys.path.insert(0, 'docs/_hooks'); import policy_pages; from policy import catalogue; "
    (tree / "page.py").write_text(f"{paged}print(policy_pages.page(catalogue.find('shortest')))")
    assert ".svg" not in run(tree, "page"), "there is no picture of it yet"


def test_a_cluster_is_a_port_an_entry_point_and_a_harness(tree: Path) -> None:
    (tree / "mine.py").write_text(
        textwrap.dedent(
            """
            from horae.fake import FakePort, Program, World
            from policy.model import Node

            def connect(options):
                nodes = tuple(Node(f"n{i}", "v100", 4) for i in range(1, 5))
                return FakePort(World(nodes, program=Program()))
            """
        )
    )
    installed = tree / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[horae.clusters]\nmine = mine:connect\n")
    (tree / "site.yaml").write_text("cluster: {adapter: mine}\npools: [{name: main, policy: max-min}]\n")
    assert run(tree, "horae", "config", "check", "site.yaml")
    (tree / "tests" / "contract" / "test_mine.py").write_text(
        textwrap.dedent(
            """
            import pytest

            from tests.contract.suite import *  # noqa: F403
            from tests.horae.fake.harness import FakeHarness


            @pytest.fixture
            def harness():
                return FakeHarness()
            """
        )
    )
    told = run(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_mine.py")
    assert int(re.findall(r"(\d+) passed", told)[0]) > 30, told


def test_a_log_format_is_a_file(tree: Path) -> None:
    (tree / "profiler" / "rules" / "formats" / "mine.yaml").write_text(
        textwrap.dedent(
            r"""
            format: mine
            title: a trainer of one's own
            rules:
              - name: line
                needs: ["<<mine>> "]
                pattern: '^<<mine>> at {iteration}/{iterations} cost {loss}$'
                examples:
                  - line: "<<mine>> at 10/100 cost 0.5123"
                    gives: {iteration: 10, iterations: 100, loss: 0.5123}
            """
        )
    )
    assert "mine" in run(tree, "horae", "profile", "--formats")
    said = run(tree, "horae", "profile", "--explain", "<<mine>> at 10/100 cost 0.5123")
    assert "mine" in said and "0.5123" in said
    told = run(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/profiler/test_book.py")
    assert " passed" in told
