"""`horae logs`: what a job printed."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated

import typer

from horae import job_number, visible
from horae.cli import exits, names
from horae.cli.options import JobArgument, Json, Socket, connect, example
from horae.tui import screen

SETTINGS = {"epilog": example("horae logs 17 --follow", "horae logs 17 --rank 0 --lines 50")}

#: Before each line of a gang's output: the rank that wrote it.
_RANK = re.compile(r"(\d+): ")
_LOOK_S = 0.5
#: Bytes that nothing ends are shown as a line; and how far a line has come that is written over and over.
_LONGEST_LINE, _BAR_S = 1 << 20, 10.0
TAB = "\t"


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only what this rank printed.")] = None,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", min=0, max=1 << 40, help="Only the newest so many, and what follows."),
    ] = None,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Print a job's output: of all its starts and all its ranks, oldest first.

    Where a job has several ranks each line begins with its rank. Lines that begin with [horae-exec] say what Horae
    did with it. A job's owner and operators may read it. --json prints a line of JSON for each line of output.
    """
    client, reader, offset = connect(socket), Printed(rank), 0
    job = names.job(client, job)
    newest: deque[str] = deque(maxlen=lines)
    for data, offset in client.log_parts(job):  # noqa: B007 - where the last one ended
        for line in reader.feed(data):
            newest.append(line)
            if lines is None:
                _show(newest.pop(), as_json)
    if not follow:
        newest.extend(reader.end())
    for line in newest:
        _show(line, as_json)
    over = not follow
    while not over:
        over = client.job(job)["ended"]  # asked before the last look: what it printed until its end is read
        for data, offset in client.log_parts(job, offset=offset):  # noqa: B007, B020 - goes on where it stopped
            for line in reader.feed(data):
                _show(line, as_json)
        if not over:
            time.sleep(_LOOK_S)
    if follow:
        for line in reader.end():
            _show(line, as_json)
    if rank is not None and not reader.told:
        _silent(rank, job, client.job(job)["gpus"]["max"])


def _silent(rank: int, job: str, most: int | None) -> None:
    """A rank that printed nothing; `most`: GPUs that the job can use, None: any number."""
    if most is not None and rank >= most:
        raise exits.Failure(
            exits.NO, f"job {job_number(job)} has no rank {rank}", f"its ranks are 0 to {most - 1} at most"
        )
    screen.note(f"job {job_number(job)} printed nothing as rank {rank}")


class Printed:
    """Output as whole lines; of one that was written over (a progress bar) what a terminal shows in the end."""

    def __init__(self, rank: int | None = None) -> None:
        self._rank = rank  #: of this one alone
        self._rest = b""
        self._shown_s = time.monotonic()
        self.told = False  #: any line

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield from self._one(line)
        bar, _, begun = self._rest.rpartition(b"\r")
        if bar and time.monotonic() - self._shown_s >= _BAR_S:
            self._rest = begun
            yield from self._one(bar)
        if len(self._rest) > _LONGEST_LINE:
            yield from self.end()

    def end(self) -> Iterator[str]:
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._one(rest)

    def _one(self, line: bytes) -> Iterator[str]:
        text = line.decode(errors="replace")
        found = _RANK.match(text)  # before a whole line, however often it was written over
        label = "" if found is None else found[0]
        shown = text.removeprefix(label).rstrip("\r").rpartition("\r")[2]
        if self._rank in (None, 0 if found is None else int(found[1])):
            self.told, self._shown_s = True, time.monotonic()
            yield label + shown if self._rank is None else shown


def _show(line: str, as_json: bool) -> None:
    if as_json:
        screen.emit_json_line({"line": line})
    else:
        print(visible.neutral(line, keep=TAB))
        sys.stdout.flush()
