"""The documentation: built strictly, every page in the navigation, and what people search for is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

TREE = Path(__file__).parents[2]
MKDOCS = [sys.executable, "-m", "mkdocs"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The built site, and what mkdocs said."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*MKDOCS, "build", "--strict", "--site-dir", str(folder)], cwd=TREE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def test_every_page_is_in_the_navigation(site: tuple[Path, str]) -> None:
    folder, said = site
    assert "not included in the" not in said
    home = (folder / "index.html").read_text()
    for title in ("Users", "Operators", "Policies", "Reference", "Development", "Glossary", "Questions"):
        assert re.search(rf"<(?:a|label|span)[^>]*>\s*(?:<[^>]*>\s*)*{title}\s*<", home), title


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("pending", "howto/trouble/"),
        ("pending", "faq/"),
        ("conda", "faq/"),
        ("virtualenv", "faq/"),
        ("upgrade", "howto/upgrade/"),
        ("interactive", "faq/"),
        ("email", "faq/"),
        ("grafana", "faq/"),
        ("wandb", "faq/"),
        ("rho", "glossary/"),
        ("sitefactor", "glossary/"),
        ("lease", "glossary/"),
    ],
)
def test_what_people_search_for_leads_to_an_answer(site: tuple[Path, str], word: str, page: str) -> None:
    index = json.loads((site[0] / "search/search_index.json").read_text())
    found = [each["location"] for each in index["docs"] if word in f"{each['title']} {each['text']}".lower()]
    assert any(location.startswith(page) for location in found), found


@pytest.mark.parametrize(
    "words",
    ["pending", "not running", "conda", "virtualenv", "upgrade", "interactive", "notebook", "preempt", "checkpoint",
     "quota", "output", "failed", "email", "time limit", "maintenance", "idle", "grafana", "wandb", "resize"],
)  # fmt: skip
def test_what_people_search_for_is_a_title(site: tuple[Path, str], words: str) -> None:
    """The search puts titles before texts: where none has the word, it is lost among pages that mention it."""
    index = json.loads((site[0] / "search/search_index.json").read_text())
    titled = [each["location"] for each in index["docs"] if words in each["title"].lower()]
    assert any(location.startswith(("faq/#", "howto/")) for location in titled), titled


@pytest.mark.parametrize(
    "word", ["rho", "gang", "guard", "arbiter", "app", "envy", "Pareto", "SiteFactor", "fence", "spool", "lease"]
)
def test_words_of_the_trade_are_in_the_glossary(word: str) -> None:
    first = [line.split("|")[1] for line in (TREE / "docs/glossary.md").read_text().splitlines() if "|" in line]
    assert any(re.search(rf"\b{word}\b", entry) for entry in first)


def test_the_strict_build_of_make_check_fails_on_a_dead_anchor(tmp_path: Path) -> None:
    """Whatever keeps it quiet must not keep mkdocs from counting its warnings."""
    shown = subprocess.run(["make", "-n", "check"], cwd=TREE, capture_output=True, text=True, check=True).stdout
    (words,) = re.findall(r"bin/mkdocs (build[a-z -]*) --site-dir", shown)
    config = {**ours(), "docs_dir": "docs"}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "docs").mkdir()
    for link, code in (("#here", 0), ("#nowhere", 1)):
        (tmp_path / "docs/index.md").write_text(f"# Page\n\n[a link]({link})\n\n## Here\n")
        command = [*MKDOCS, *words.split(), "--site-dir", str(tmp_path / "site")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr


def ours() -> Mapping[str, Any]:
    """What our configuration says about warnings."""
    said = yaml.safe_load((TREE / "mkdocs.yml").read_text())
    return {key: said[key] for key in ("site_name", "strict", "validation")}


def headings(path: Path) -> Iterator[str]:
    yield from re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)


def test_people_who_report_a_hole_find_out_how() -> None:
    assert {"How to report", "What is supported"} <= set(headings(TREE / "SECURITY.md"))
    for page in ("README.md", "docs/index.md", "docs/howto/operate.md"):
        assert "security.md" in (TREE / page).read_text().lower(), page
