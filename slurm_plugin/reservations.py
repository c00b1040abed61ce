"""`scontrol show reservation` -> nodes that are to be away for maintenance. Pure.

Counted are reservations with the flag MAINT, which are no user's own and which Slurm itself starts no job into; of
others Slurm says to each job alone whether it may use them. Times are seconds, as `SLURM_TIME_FORMAT=%s` has them
written; one that is written otherwise is left out, and told.
"""

from __future__ import annotations

import re

from ClusterShell.NodeSet import NodeSet, NodeSetException

from horae.port import Absence

_WORD = re.compile(r"(\w+)=(\S*)")
_MOST_DIGITS = 12


def read(text: str) -> tuple[tuple[Absence, ...], tuple[str, ...]]:
    """The maintenance that is known, and what could not be read, in words."""
    found, odd = [], []
    for part in re.split(r"(?=^ReservationName=)", text, flags=re.MULTILINE):
        words = dict(_WORD.findall(part))
        name = words.get("ReservationName", "")
        if not name or "MAINT" not in words.get("Flags", "").split(","):
            continue
        times = [words.get(key, "") for key in ("StartTime", "EndTime")]
        try:
            nodes = tuple(NodeSet(words.get("Nodes", "").replace("(null)", "")))
        except NodeSetException:
            nodes = ()
        if not nodes or not all(at.isdecimal() and len(at) <= _MOST_DIGITS for at in times):
            odd.append(
                f"maintenance {name[:64]!r} cannot be read from `scontrol show reservation`, and is not counted on"
            )
            continue
        begins_s, ends_s = map(float, times)
        if begins_s < ends_s:
            found.append(Absence(name, nodes, begins_s, ends_s, "reserved for maintenance in Slurm"))
    return tuple(found), tuple(odd)
