"""Reference pages made from the code at build time, so that they cannot say anything else than the code does.

mkdocs calls `on_files`; each generator below is one page. `docs/contributing.md` is CONTRIBUTING.md of the checkout.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["TERM"] = "dumb"
TREE = Path(__file__).resolve().parents[2]


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    pages = {
        "reference/commands.md": commands(),
        "reference/job.md": job_file(),
        "reference/api.md": api(),
        "contributing.md": contributing(),
        **optional(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def optional() -> dict[str, str]:
    return {
        "reference/config.md": config_file(),
        "reference/policies.md": policies(),
        "reference/instance.md": instance(),
        "reference/submarine.md": submarine(),
    }


# --- commands ----------------------------------------------------------------------------------------------


def commands() -> str:
    import typer

    from horae.cli import COMMANDS, GROUPS
    from horae.cli.app import application

    root: Any = typer.main.get_command(application())
    out = ["# Commands", "", "Made from the code. `horae COMMAND --help` says the same.", "", EXIT_CODES]
    order = [name for _, names in GROUPS for name in names]
    for name in [*order, *(n for n in COMMANDS if n not in order)]:
        out += list(_command(root.commands[name], f"horae {name}", 2))
    return "\n".join(out)


EXIT_CODES = """\
| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no, or some inputs were bad |
| 2 | usage |
| 3 | bad input file or value |
| 4 | no such job |
| 5 | not allowed |
| 6 | the arbiter or the cluster cannot be reached, or is not ready: try again |
| 70 | a bug; a report was written to a file |
| 130 | interrupted |
"""


def _command(command: Any, title: str, depth: int) -> Iterator[str]:
    yield f"\n{'#' * depth} {title}\n"
    yield command.help or ""
    if command.epilog:
        yield "\n" + re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", command.epilog).replace("[dim]", "").replace(
            "[/dim]", ""
        )
    rows = []
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        if parameter.opts[0].startswith("-"):
            words = ", ".join(f"`{o}`" for o in parameter.opts)
        else:
            words = f"`{parameter.metavar or parameter.name.upper()}`"
        rows.append(f"| {words} | {_cell(parameter.help or '')}{_default(parameter)} |")
    if rows:
        yield "\n| | |\n|---|---|\n" + "\n".join(rows)
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(child, f"{title} {name}", depth + 1)


def _default(parameter: Any) -> str:
    value = parameter.default
    if value in (None, False, "", ()) or callable(value) or getattr(parameter, "required", False):
        return ""
    return f" Default: `{getattr(value, 'value', value)}`."


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


# --- forms -------------------------------------------------------------------------------------------------


def _form(schema: dict[str, Any]) -> Iterator[str]:
    """A JSON Schema of keys and values as tables, one a mapping; a section for everything that is linked to."""
    yield from _keys(schema)
    for name, part in schema.get("$defs", {}).items():
        yield f"\n### {name.removesuffix('Form')} {{#{name.lower()}}}\n"
        yield part.get("description", "")
        if "properties" in part:
            yield from _keys(part)
        else:
            yield f"\nValue: {_kind(part)}."
            for each in part.get("anyOf", ()):
                if "properties" in each:
                    yield "\nThe mapping's keys:"
                    yield from _keys(each)


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    yield "\n| key | value | default | |\n|---|---|---|---|"
    for key, part in schema.get("properties", {}).items():
        default = "required" if key in required else f"`{json.dumps(part['default'])}`" if "default" in part else ""
        yield f"| `{key}` | {_cell(_kind(part))} | {_cell(default)} | {_cell(part.get('description', ''))} |"


_KINDS = {"object": "mapping", "string": "text", "integer": "whole number", "boolean": "true or false"}


def _kind(part: dict[str, Any]) -> str:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name.removesuffix('Form')}](#{name.lower()})"
    if "enum" in part:
        return ", ".join(f"`{v}`" for v in part["enum"])
    for union in ("anyOf", "oneOf", "allOf"):
        if union in part:
            return " or ".join(dict.fromkeys(_kind(p) for p in part[union] if p.get("type") != "null"))
    kind = part.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(part.get('items', {}))}"
    if kind == "object" and isinstance(part.get("additionalProperties"), dict):
        return f"mapping to {_kind(part['additionalProperties'])}"
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(_KINDS.get(each, each) for each in kinds if each != "null")


def job_file() -> str:
    from horae.job_form import JobForm

    head = """# Job file

What `horae submit --file` reads, and what the API's `POST /v1/jobs` takes: one job, or `jobs:` with a list of them.
Unknown keys are errors that name the known ones.

```yaml
jobs:
  - name: resnet
    command: [python, train.py, --batch, "256"]
    gpus: {min: 1, max: 8}
    checkpoint: checkpoints
  - name: probe
    command: [python, probe.py]
    gpus: 1
    elastic: false
```
"""
    return "\n".join([head, *_form(JobForm.model_json_schema())])


def config_file() -> str:
    from horae import config

    text = re.sub(r"\n {4}", "\n    ", (config.__doc__ or "").strip())
    return "\n".join(["# Configuration", "", text, *_form(config.Config.model_json_schema())])


def submarine() -> str:
    from yarn_bridge.submarine import markdown

    head = "# Submarine's options\n\nMade from the list that `horae submarine job run` obeys. "
    return head + "[Guide](../howto/submarine.md). `since` is Submarine's release.\n\n" + markdown() + "\n"


def instance() -> str:
    from policy.text.forms import InstanceForm

    head = "# Instance file\n\nOne decision, fully specified: what `horae decide` reads and `horae snapshot` writes.\n"
    return "\n".join([head, *_form(InstanceForm.model_json_schema())])


def policies() -> str:
    from policy.catalogue import entries

    head = "Made from the catalogue; `horae policies` says the same. [How to write one](../policy-author.md)."
    out = ["# Policies", "", head, "", "| name | what it does |", "|---|---|"]
    out += [f"| [`{name}`](#{name}) | {_cell(entry.summary)} |" for name, entry in entries().items()]
    for name, entry in entries().items():
        out += ["", f"## {name}", "", entry.summary, ""]
        if entry.paper != "-":
            out += [f"From: {entry.paper}, {entry.section}.", ""]
        out += [f"Tenants' weights {'count' if entry.weighs else 'are not read: to it all tenants are equals'}.", ""]
        for title, lines in (("Needs", entry.needs), ("Guarantees", entry.guarantees), ("Notes", entry.notes)):
            if lines:
                out += [f"{title}:", "", *(f"- {line}" for line in lines), ""]
        if entry.options:
            out += ["| option | default | |", "|---|---|---|"]
            out += [f"| `{o.name}` | `{o.default}` | {_cell(o.text)} |" for o in entry.options]
    return "\n".join(out)


# --- API ---------------------------------------------------------------------------------------------------


def api() -> str:
    from horae.api.routes import openapi

    document = openapi()
    out = ["# API", "", document["info"]["description"], "", "| request | what it does |", "|---|---|"]
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            out.append(f"| `{method.upper()} {path}` | {_cell(route.get('summary', ''))} |")
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            out += ["", f"## {method.upper()} {path}", "", route.get("description") or route.get("summary", "")]
            if route.get("parameters"):
                out += ["", "| parameter | | |", "|---|---|---|"]
                out += [
                    f"| `{p['name']}` | {_cell(_kind(p.get('schema', {})))} | {_cell(p.get('description', ''))} |"
                    for p in route["parameters"]
                ]
            answer = route["responses"]["200"].get("content", {}).get("application/json")
            if answer:
                out += ["", f"Answers {_kind(answer['schema'])}."]
    out += ["", "## Answers"]
    for name, schema in document["components"]["schemas"].items():
        if not name.endswith("Error"):
            out += ["", f"### {name}", "", *_fields(schema)]
    return "\n".join(out)


def _fields(schema: dict[str, Any]) -> list[str]:
    """What an object holds; what is not always there is marked."""
    always = schema.get("required", ())
    rows = [
        f"| `{field}`{'' if field in always else ' (not always)'} | {_cell(_kind(part))} |"
        for field, part in schema["properties"].items()
    ]
    told = [schema["description"], ""] if "description" in schema else []
    return [*told, "| field | |", "|---|---|", *rows]


def contributing() -> str:
    return (TREE / "CONTRIBUTING.md").read_text().replace("](docs/", "](")
