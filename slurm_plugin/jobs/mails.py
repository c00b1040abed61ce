"""What Slurm writes to a job's user of its begin and end: a change of shape is neither. Pure.

A stop ends in Slurm with "Failed, ExitCode 86", and a start after it with "Began". So its mails are told to rest before
it is asked to leave, and to come again with the next start, but for that of its begin.
"""

from __future__ import annotations

from slurm_plugin.comment import Tag
from slurm_plugin.writes import Change, Write, update

#: Slurm's bits (slurm.h), by what `scontrol update` calls them
_BITS = {
    0x001: "BEGIN", 0x002: "END", 0x004: "FAIL", 0x008: "REQUEUE", 0x010: "TIME_LIMIT", 0x020: "TIME_LIMIT_90",
    0x040: "TIME_LIMIT_80", 0x080: "TIME_LIMIT_50", 0x100: "STAGE_OUT", 0x200: "ARRAY_TASKS", 0x400: "INVALID_DEPEND",
}  # fmt: skip
_BEGIN, _KEPT = 0x001, 0x600  #: what says how mails are made, or is of a job that waits, stays as it is


def kinds(bits: int) -> tuple[str, ...]:
    return tuple(word for bit, word in _BITS.items() if bits & bit)


def of_start(tag: Tag | None, first: bool) -> tuple[str, ...] | None:
    """What its user is written about from a start on; None: nothing is to be written to Slurm about that."""
    if tag is None or tag.own_shape or not tag.mail or first:
        return None
    return kinds(tag.mail & ~_BEGIN)


def rest(job: str, tag: Tag | None) -> Write | None:
    """Before a job is asked to leave."""
    if tag is None or tag.own_shape or not tag.mail:
        return None
    return update(job, Change(mail=kinds(tag.mail & _KEPT)))


def again(job: str, tag: Tag | None) -> Write | None:
    """Of a job that was asked to leave, and is to stay after all."""
    told = of_start(tag, first=False)
    if told is None:
        return None
    return update(job, Change(mail=told))
