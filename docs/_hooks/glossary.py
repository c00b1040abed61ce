"""Words of the trade lead to the glossary where a page says them first, with what they mean as the link's title.

The glossary's table is the list: a row there is enough. Not linked are words that everybody knows in a sense that is
near enough (`COMMON`), headings, code that is more than the word, and what is a link already.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = "glossary.md"
COMMON = frozenset(
    "advise afs away enforce explain gavel interactive observe oef order pending priority restart round span start "
    "themis unused ...".split()
)
#: Inside of these nothing becomes a link.
CLOSED = frozenset("a pre script style svg h1 h2 h3 h4 h5 h6".split())
_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"</?(\w+)")


def rows(text: str) -> Iterator[tuple[str, str, list[str], str]]:
    """(first cell, anchor, words, meaning) of each row of the table that has words to link."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 2 or cells[0] in ("word", "---"):
            continue
        if words := [word for word in cells[0].split(", ") if word not in COMMON]:
            yield cells[0], anchor(words[0]), words, re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", cells[1])


def anchor(word: str) -> str:
    return re.sub(r"\W+", "-", word.lower())


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    text = (Path(config.docs_dir) / PAGE).read_text()
    if page.file.src_uri == PAGE:
        return _anchored(content, text)
    return linked(content, text, files.get_file_from_path(PAGE).url_relative_to(page.file))


def _anchored(content: str, text: str) -> str:
    for cell, where, _, _ in rows(text):
        content = content.replace(f"<td>{cell}</td>", f'<td id="{where}">{cell}</td>', 1)
    return content


def linked(content: str, text: str, url: str) -> str:
    """The page with the first of each word as a link."""
    known = {word.lower(): (where, meaning) for _, where, words, meaning in rows(text) for word in words}
    of = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.-])({of})s?(?![\w-])", re.IGNORECASE)
    told: set[str] = set()

    def link(found: re.Match[str]) -> str:
        word = found[1].lower()
        if word in told:
            return found[0]
        told.add(word)
        where, meaning = known[word]
        title = html.escape(html.unescape(meaning))
        return f'<a class="word" href="{url}#{where}" title="{title}">{found[0]}</a>'

    depth, code, out = 0, False, []
    for part in _TAG.split(content):
        name = _NAME.match(part)
        if name is not None and not part.endswith("/>"):
            step = -1 if part.startswith("</") else 1
            depth += step * (name[1] in CLOSED)
            code = step > 0 if name[1] == "code" else code
        elif name is None and not depth and (not code or pattern.fullmatch(part)):
            out.append(pattern.sub(link, part))
            continue
        out.append(part)
    return "".join(out)
