"""Jobs as text of our own form, and text into files: the same jobs, the same bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from horae.elastic.files import saved
from horae.sim.traces.model import USUAL, TraceJob
from policy.model import BadInput


def written(job: TraceJob) -> list[str]:
    """A job as a row of the form `ours`, all columns."""
    return [
        plain(job.submitted),
        "" if job.duration is None else plain(job.duration),
        str(job.gpus),
        job.job,
        job.tenant,
        job.app,
        str(job.min_gpus),
        str(job.max_gpus),
        job.model or "",
        "" if job.iterations is None else plain(job.iterations),
        str(int(job.known)),
        "" if job.slowdown == USUAL else "/".join(map(plain, astuple(job.slowdown))),
        "" if job.loss is None else "/".join(map(plain, astuple(job.loss))),
        " ".join(f"{phase.jobs}x{plain(phase.iterations)}" for phase in job.phases),
    ]


def plain(value: float) -> str:
    """As short as it can be read back."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def as_text(columns: list[str], table: Iterable[list[str]]) -> Iterator[str]:
    """Rows as lines of CSV under a header."""
    yield line(columns)
    yield from map(line, table)


def line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def writable(path: Path | None, field: str, read: Iterable[Path]) -> None:
    """Raises BadInput where an answer could not be written in the end, or would replace a file that is `read`."""
    if path is None or (path.exists() and not (path.is_file() or path.is_dir())):
        return
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that there is not"
        raise BadInput(what, field=field, value=path, remedy="name a file")
    if path.exists() and any(one.exists() and path.samefile(one) for one in read):
        raise BadInput(
            "is the file that is read, which it would replace", field=field, value=path, remedy="name another"
        )


def to_file(path: Path, text: Iterable[str]) -> None:
    """A name in `.gz` is packed, without a time in it."""
    with saved(path) as beside, open(beside, "wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
                packed.writelines(part.encode() for part in text)
        else:
            file.writelines(part.encode() for part in text)


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
