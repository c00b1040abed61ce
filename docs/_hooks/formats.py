"""The reference of log formats, made from the rule files: one section a format, each rule with a line that it reads."""

from __future__ import annotations

from typing import Any

HEAD = """\
# Log formats

Made from the rule files in `profiler/rules/formats/`; `horae profile --formats` lists the same. Logs that none of
them knows
are read by the generic reader: key-value pairs, counters, tables and bars near the words of the lexicon
(`profiler/rules/lexicon/lexicon.yaml`). A format of your own:
[Profile any log](../howto/profile.md#a-format-of-your-own).

| kind | what such lines are |
|---|---|
| train | progress inside training |
| epoch | the summary of a training epoch |
| validation | losses and accuracies of held-out data |
| context | an epoch or an iteration begins; its values follow on lines of their own |
| loose | values without a counter: they belong to the counter before them |
| setup | facts of the run: ranks, GPUs, totals, batch size |
| start | a program starts |
| pause | training stands still |
| end | a training came to its end: the next loss of training is of another run |
| ignore | nothing of interest, whatever the line looks like |
"""


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/formats.md", content=page()))
    return files


def page() -> str:
    from profiler.rules.book import builtin_rules

    out = [HEAD]
    formats: dict[str, list[Any]] = {}
    for rule in builtin_rules():
        formats.setdefault(rule.format, []).append(rule)
    for name in sorted(formats):
        out += [f"## {name}", "", formats[name][0].title or name, ""]
        for rule in formats[name]:
            out += [f"**{rule.name}** ({rule.kind})", "", "```text", *(shown(e.line) for e in rule.examples), "```", ""]
            given = {key: None for e in rule.examples for key in e.gives}
            if given:
                out += ["gives " + ", ".join(f"`{key}`" for key in given), ""]
    return "\n".join(out)


def shown(line: str) -> str:
    """A line as it can stand in a page: no control characters, no end of the block."""
    return "".join(c if c.isprintable() else " " for c in line).replace("```", "'''").rstrip()
