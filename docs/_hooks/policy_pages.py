"""One page a policy, made from the catalogue and the policy's own module text, with the picture of its decisions."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    """Each policy's page stands in the navigation behind those that are named there."""
    from policy import catalogue

    for section in config.nav:
        if "Policies" in section:
            there = set(section["Policies"])
            pages = [f"policies/{name}.md" for name in ("afs", "simple", *catalogue.entries())]
            section["Policies"] += [{"Each policy": [page for page in dict.fromkeys(pages) if page not in there]}]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    from policy import catalogue

    written = {file.src_uri for file in files}
    for entry in catalogue.entries().values():
        if f"policies/{entry.name}.md" in written:  # a page that somebody wrote stands
            continue
        files.append(File.generated(config, f"policies/{entry.name}.md", content=page(entry)))
    return files


def page(entry: Any) -> str:
    module = import_module(entry.call.partition(":")[0])
    out = [f"# {entry.name}", "", entry.summary, "", f"*{entry.paper}*, {entry.section}", ""]
    picture = f"images/policies/{entry.name}.svg"  # `docs/policies/pictures.py` draws it
    if (DOCS / picture).exists():
        out += [f"![{entry.name}: who holds which GPU over twelve rounds](../{picture})", ""]
        out += ["The picture is made of real decisions on `docs/policies/example.yaml`.", ""]
    out += ["## How it decides", "", prose(inspect.getdoc(module) or ""), "", "## Needs and promises", ""]
    out += [f"- needs: {need}" for need in entry.needs] or ["- needs nothing but jobs and nodes"]
    out += [f"- holds: {promise}" for promise in entry.guarantees]
    out.append(f"- tenants' weights: {'count' if entry.weighs else 'are not read: to it all tenants are equals'}")
    out += [f"- differs from the paper: {note}" for note in entry.notes]
    if entry.options:
        out += ["", "## Options", "", "| option | default | meaning |", "|---|---|---|"]
        for o in entry.options:
            unit = f" ({o.unit})" if o.unit else ""
            choices = f" One of {', '.join(o.choices)}." if o.choices else ""
            out.append(f"| `{o.name}` | `{o.default}`{unit} | {o.text}.{choices} |")
    out += ["", "## Try it", "", "```", f"horae decide docs/policies/example.yaml --policy {entry.name}", "```", ""]
    return "\n".join(out)


def prose(text: str) -> str:
    """A docstring as Markdown: angle brackets and stars are text there."""
    return re.sub(r"(?<!`)[<>](?!`)", lambda m: {"<": "&lt;", ">": "&gt;"}[m[0]], text).replace("*", "\\*")
