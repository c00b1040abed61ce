"""Text forms of the command line: durations, sizes, GPU ranges, folded host lists. Numbers inside, text outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from policy.errors import BadInput

if TYPE_CHECKING:
    from policy.model import GpuRange, Gpus, NodeName, Seconds

# As many digits as anybody means: more are no number to Python, or no time.
_SLURM_TIME = re.compile(r"(?a:(?:(?P<d>\d{1,12})-)?(?P<a>\d{1,12})(?::(?P<b>\d{1,12}))?(?::(?P<c>\d{1,12}))?)")
_UNIT_TIME = re.compile(r"(?a:(?P<n>\d{1,18}(?:\.\d+)?)(?P<u>s|m|h|d)?)")
_COUNT = re.compile(r"\s*[0-9]{1,12}\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(seconds: Seconds | None) -> str:
    """As squeue writes it: `0:05`, `12:34`, `1:02:03`, `2-03:04:05`; `-` for unknown."""
    if seconds is None:
        return "-"
    minutes, s = divmod(max(int(seconds), 0), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}-{h:02}:{m:02}:{s:02}"
    return f"{h}:{m:02}:{s:02}" if h else f"{m}:{s:02}"


def parse_duration(text: str, field: str = "duration") -> Seconds:
    """`D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`, `90`, `90s`, `5m`, `2h`, `1d`; a bare number is seconds."""
    if match := _UNIT_TIME.fullmatch(text.strip()):
        return float(match["n"]) * _SECONDS[match["u"] or "s"]
    match = _SLURM_TIME.fullmatch(text.strip())
    if match is None:
        raise BadInput(
            "not a duration", field=field, value=text, remedy="write D-HH:MM:SS, HH:MM:SS, MM:SS, 90s, 5m, 2h or 1d"
        )
    parts = [int(p) for p in (match["a"], match["b"], match["c"]) if p is not None]
    if match["d"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    else:  # [hours:]minutes:seconds
        hours, minutes, seconds = (*([0] * (3 - len(parts))), *parts)
    return float(int(match["d"] or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def parse_gpus(text: str, field: str = "--gpus") -> GpuRange:
    """`4` rigid; `1:8` a range; `2:` no upper limit; `1,2,4,8` these only. Requested: the most, else the least."""
    from policy.model import GpuRange

    remedy = "write one number (4), a range (1:8 or 2:), or a list (1,2,4,8)"
    try:
        if "," in text:
            allowed = tuple(sorted({_count(part) for part in text.split(",")}))
            gpus = GpuRange(allowed[-1], allowed[0], allowed[-1], allowed)
        elif ":" in text:
            low, high = text.split(":")
            top = _count(high) if high.strip() else None
            least = _count(low)
            gpus = GpuRange(least if top is None else top, least, top)
        else:
            count = _count(text)
            gpus = GpuRange(count, count, count)
    except ValueError:
        raise BadInput("not a number of GPUs", field=field, value=text, remedy=remedy) from None
    if gpus.min < 1 or (gpus.max is not None and gpus.max < gpus.min):
        raise BadInput("no gang has such a size", field=field, value=text, remedy=remedy)
    return gpus


def _count(text: str) -> int:
    """Python takes `1_000`, and the digits of every script, for a number. Raises ValueError."""
    if not _COUNT.fullmatch(text):
        raise ValueError(text)
    return int(text)


def gpu_range(gpus: GpuRange) -> str:
    """The form that `parse_gpus` reads."""
    if gpus.allowed is not None:
        return ",".join(map(str, gpus.allowed))
    if gpus.rigid:
        return str(gpus.min)
    return f"{gpus.min}:{'' if gpus.max is None else gpus.max}"


def fold(nodes: Iterable[NodeName]) -> str:
    """Host names as one folded list: `n[1-4,7]`."""
    names = sorted(set(nodes))
    if len(names) == 1:
        return names[0]
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError

    try:
        return str(NodeSet.fromlist(names))
    except NodeSetParseError:  # a name that is no host name to ClusterShell: show it as it is
        return ",".join(names)


def allocation(nodes: Mapping[NodeName, Gpus]) -> str:
    """Where a job runs: `n[1-2]:4,n5:2`, nodes with equal GPU counts folded together, most GPUs first."""
    by_count = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
    return ",".join(
        f"{fold(name for name, _ in group)}:{gpus}" for gpus, group in groupby(by_count, key=lambda item: item[1])
    )


def number(value: float | None, digits: int = 4) -> str:
    """A measured number for people: few digits, no exponent for everyday sizes, `-` for unknown."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}"


def range_words(gpus: GpuRange) -> dict[str, object] | int:
    """A range as the API's bodies and job files hold it."""
    if gpus.allowed is not None:
        return {"requested": gpus.requested, "allowed": list(gpus.allowed)}
    if gpus.rigid:
        return gpus.requested
    return {"requested": gpus.requested, "min": gpus.min, "max": gpus.max}
