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
    rooms = packages()
    assert len(rooms) > 40
    assert [folder for folder in rooms if f"{folder}/" not in plan()] == []


def test_no_room_is_overcrowded() -> None:
    assert {folder: files for folder, files in packages().items() if files > MOST_FILES and folder not in FLAT} == {}
