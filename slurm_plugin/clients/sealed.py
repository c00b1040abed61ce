"""Records whose bounds nobody can forge: squeue is told to set marks between fields and records that are new each time.

What users write (comments, job names, accounts, paths, GPU requests) may hold any character but NUL, line breaks and
control characters included. So what separates two fields is a mark of 60 random bits that is made for one answer, and
squeue is told it by its environment, not on its command line, which every user of the host can read. What was written
before the answer cannot hold it, and nobody can learn it while squeue runs.

An answer is whole when its first record is the heading, with a name for each field that was asked for, and its last
one is ended. Anything else, an empty answer too, says nothing about any job.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horae.port import FixConfiguration, TryLater

#: squeue takes its format from here; `-O` would show it to all
VARIABLE = "SQUEUE_FORMAT2"
#: What a `prefix` must let through, and what an administrator writes for it.
REMEDY = f'let it through, in sudoers: Defaults env_keep += "{VARIABLE} SLURM_TIME_FORMAT LC_ALL"'


@dataclass(frozen=True, slots=True)
class Seal:
    """Marks after each field and after each record. The first character keeps squeue from reading a width in it."""

    field: str
    record: str

    @classmethod
    def fresh(cls) -> Seal:
        field, record = (base64.b32encode(secrets.token_bytes(8))[:12].decode() for _ in range(2))
        return cls("\x1f" + field, "\x1e" + record)

    def format(self, names: Sequence[str]) -> str:
        *head, last = names
        return ",".join([*(f"{name}:{self.field}" for name in head), f"{last}:{self.record}"])

    def records(self, text: str, names: Sequence[str], command: str) -> list[tuple[str, ...]]:
        """The fields of each record, the same one once. Raises TryLater for an answer that is not whole."""
        if not text:
            raise TryLater(f"{command} answered nothing, not even its heading")
        if self.record + "\n" not in text:
            if self.field in text or self.record in text:
                raise TryLater(f"{command}'s answer was cut off in its heading")
            raise FixConfiguration(f"{command} was not told how to answer: {VARIABLE} does not reach it", REMEDY)
        heading, *rest, end = text.split(self.record + "\n")
        if end:
            raise TryLater(f"{command}'s answer was cut off after {len(rest)} records")
        if len(heading.split(self.field)) != len(names):
            raise TryLater(f"{command} answered other fields than were asked for")
        return [tuple(record.split(self.field)) for record in dict.fromkeys(rest)]


#: For what no user writes a word of (nodes): fixed marks.
PLAIN = Seal("\x1f", "\x1e")


def named(record: tuple[str, ...], names: Sequence[str], odd: list[str]) -> Mapping[str, str] | None:
    """A record's fields by name. One with other fields than were asked for is set aside with a note."""
    if len(record) == len(names):
        return dict(zip(names, record, strict=True))
    odd.append(f"a record of {len(record)} fields where {len(names)} were asked for was set aside")
    return None
