"""`docs/architecture.md` is a plan of the house: what it names is there, and every room is in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = ("policy", "profiler", "horae", "slurm_plugin", "yarn_bridge")
#: files a folder, above which nobody finds anything; a flat list by nature (one command a file) aside
MOST_FILES = 15
FLAT = {"horae/cli"}


def plan() -> str:
    return PAGE.split("## Rooms", 1)[1].split("```", 2)[1]


def packages() -> dict[str, int]:
    """Folder -> Python files in it, of the product."""
    listed = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    folders = [str(path.parent.relative_to(ROOT)) for path in listed]
    return {folder: folders.count(folder) for folder in sorted(set(folders))}


def test_every_path_on_the_page_is_there() -> None:
    named = re.findall(rf"\b(?:{'|'.join(ROOMS)}|tests|benchmarks|containers|supply)/[\w./*-]*", PAGE)
    assert len(named) > 60
    missing = [path for path in named if not any(ROOT.glob(path.rstrip("./") or path))]
    assert missing == []


def test_every_package_is_in_the_plan() -> None:
    """But policies, which the catalogue lists."""
    rooms = packages()
    assert len(rooms) > 40
    unnamed = [folder for folder in rooms if f"{folder}/" not in plan()]
    assert [folder for folder in unnamed if not (ROOT / folder / "entries.py").exists()] == []


def test_no_room_is_overcrowded() -> None:
    assert {folder: files for folder, files in packages().items() if files > MOST_FILES and folder not in FLAT} == {}


def test_helpers_come_from_helper_modules() -> None:
    """A test module is imported by pytest alone: what others use of it is a helper, and has a module of its own."""
    borrowed = re.compile(r"^\s*(?:from|import) tests(?:\.\w+)*(?:\.test_\w+| import (?:.*\W)?test_)", re.MULTILINE)
    asked = [path for room in ("tests", "benchmarks") for path in (ROOT / room).rglob("*.py")]
    assert len(asked) > 300
    assert [str(path.relative_to(ROOT)) for path in asked if borrowed.search(path.read_text())] == []
