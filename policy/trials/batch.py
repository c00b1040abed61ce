"""Many decisions, one a line: JSON Lines in, answers out, in order. A bad line is answered with its error.

A line is `{"instance": ..., "policy": ..., "options": {...}, "seed": N, "rounds": N}`; `instance` is the path of a
file (relative to the working folder, else to the folder of the batch) or the instance itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from policy.decide import PolicyFailed, decide
from policy.model import BadInput, Seconds, Snapshot
from policy.text import answer, instance
from policy.text.instance import Tables
from policy.text.textform import Document, Form, fit, load
from policy.trials import rounds


class LineForm(Form):
    instance: Any = Field(description="path of an instance file, or the instance itself")
    policy: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    rounds: int | None = Field(None, ge=1)


def answers(
    lines: Iterable[str],
    where: str,
    *,
    tables: Tables | None = None,
    time_limit_s: Seconds | None = None,
    solver: str | None = None,
) -> Iterator[Mapping[str, Any]]:
    """One plain answer a line that is not blank; `{"error": text}` where a line, its file or its policy fails."""
    read: dict[str, Snapshot] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = load(line, where, first_line=number, json_only=True)
            yield _answer(document, where, read, tables, time_limit_s, solver)
        except BadInput as error:
            yield {"error": str(error)}
        except PolicyFailed as error:
            yield {"error": str(error)}


def _answer(
    document: Document,
    where: str,
    read: dict[str, Snapshot],
    tables: Tables | None,
    time_limit_s: Seconds | None,
    solver: str | None,
) -> Mapping[str, Any]:
    form = fit(LineForm, document)
    if isinstance(form.instance, str):
        path = Path(form.instance)
        if not path.exists() and not path.is_absolute():
            path = Path(where).parent / path
        key = str(path)
        if key not in read:
            read[key] = instance.read(key, tables)
        snapshot = read[key]
    else:
        inner = Document(form.instance, where, document.text, document.first_line)
        snapshot = instance.from_document(inner, tables)
    if form.rounds is None:
        decision = decide(snapshot, form.policy, form.options, form.seed, time_limit_s, solver)
        return answer.to_plain(decision)
    played = rounds.run(snapshot, form.rounds, form.policy, form.options, form.seed, time_limit_s, solver)
    return {**answer.to_plain(played.decision), "fractions": dict(played.fractions)}
