"""The documentation: built strictly, every page in the navigation, and what people search for is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
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
     "quota", "slow", "killed", "torchrun", "out of memory", "output", "failed", "email", "time limit",
     "maintenance", "idle", "grafana", "wandb", "resize"],
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


#: Nobody outside the trade knows these, or knows them otherwise.
TRADE = (
    "rho gang guard lease SiteFactor quantum certificate fence epoch tenant arbiter app envy Pareto spool journal "
    "rigid elastic pool snapshot supervisor".split()
)


class Prose(HTMLParser):
    """An article's text in pieces, each with what it leads to; no headings, listings, and code of several words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.pieces: list[tuple[str, str]] = []
        self.ids: set[str] = set()
        self._shut, self._to, self._code = 0, "", False
        self.feed(page[page.index("<article") : page.index("</article>")])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.ids.add(told.get("id") or "")
        self._shut += tag in ("pre", "svg", "style", "script", "h1", "h2", "h3", "h4")
        self._to = told.get("href") or "" if tag == "a" else self._to
        self._code = tag == "code" or self._code

    def handle_endtag(self, tag: str) -> None:
        self._shut -= tag in ("pre", "svg", "style", "script", "h1", "h2", "h3", "h4")
        self._to = "" if tag == "a" else self._to
        self._code = self._code and tag != "code"

    def handle_data(self, data: str) -> None:
        if not self._shut and not (self._code and not data.isidentifier()):
            self.pieces.append((data, self._to))


def test_a_word_of_the_trade_leads_to_the_glossary_where_a_page_says_it_first(site: tuple[Path, str]) -> None:
    glossary = Prose((site[0] / "glossary/index.html").read_text())
    told = 0
    for path in site[0].rglob("index.html"):
        page = Prose(path.read_text())
        for word in TRADE:
            uses = [to for text, to in page.pieces if re.search(rf"(?i)(?<![\w.-]){word}s?(?![\w-])", text)]
            plain = [to for to in uses if not to or "glossary/#" in to]
            if not plain or path.parent.name == "glossary":
                continue
            told += 1
            assert "glossary/#" in plain[0], f"{path}: {word}"
            assert plain[0].partition("#")[2] in glossary.ids, plain[0]
    assert told > 200


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


def test_what_users_of_other_schedulers_ask_is_answered() -> None:
    text = (TREE / "docs/faq.md").read_text()
    rows = [line.split(" | ") for line in text[text.index("## What users of other") :].splitlines() if "? | " in line]
    assert len(rows) == 17 and sum(not row[1].startswith("No") for row in rows) >= 14


def test_people_who_report_a_hole_find_out_how() -> None:
    assert {"How to report", "What is supported"} <= set(headings(TREE / "SECURITY.md"))
    for page in ("README.md", "docs/index.md", "docs/howto/operate.md"):
        assert "security.md" in (TREE / page).read_text().lower(), page
