"""What tools on the way do to a log: each of these leaves what it says as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.profiler.others import read

#: No lines of its own: states of bars and tables are not touched line by line.
_UNTOUCHED = re.compile(r"[\r\x1b\b]|^\s*[|+]", re.MULTILINE)

FIELDS = (
    *(("iterations", "first"), ("iterations", "last"), ("iterations", "total"), ("epochs", "last"), ("loss", "n")),
    *(("loss", "first"), ("loss", "last"), ("accuracy", "last"), ("iteration_time", "median")),
)


def _each(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda log: "".join(change(line) + "\n" for line in log.splitlines())


def _boxed(line: str) -> str:
    inner = json.dumps(line + "\n", ensure_ascii=False)
    return f'{{"log":{inner},"stream":"stderr","time":"2024-05-01T10:00:00.123456789Z"}}'


_DICT = re.compile(r"""^(\{(['"])\w.*)(\})$""")
#: What a logger may leave out of a dict without another number changing.
_SPARE = re.compile(r"""(['"])(?:grad_norm|learning_rate|lr|memory|data_time)\1: [^,{}\[\]]*, """)


def _with_a_key(line: str) -> str:
    found = _DICT.match(line)
    return line if found is None else f"{found[1]}, {found[2]}gc_pressure{found[2]}: 0.125}}"


def _without_a_key(line: str) -> str:
    return _SPARE.sub("", line) if _DICT.match(line) else line


_DECIMAL = re.compile(r"(?<![\w.])(\d+\.\d+)(?![\w.])")
#: Lines that carry a rank of their own.
_RANKED = re.compile(r"(?i)rank|^\[\d+,|<std|worker|^\s*\[?\d+\]?[:,]|device")


#: What stamps every line with one time, as a shipper does that takes a buffer at once: the time of an iteration is lost
#: where the program's own stamp has no date, or stands elsewhere.
STAMPED = (
    *("journald", "kubectl with stamps", "milliseconds of a shipper", "loguru", "absl", "structlog", "hydra"),
    "container runtime",
)

MUTATIONS: dict[str, Callable[[str], str]] = {
    "tabs of a shipper": _each(lambda line: f"train-7d9f-xk2lp\tstdout\t{line}"),
    "container runtime": _each(lambda line: f"2024-05-01T10:00:00.123456789Z stdout F {line}"),
    "container as JSON": _each(_boxed),
    "journald": _each(lambda line: f"May 01 10:00:00 node17 python3[48211]: {line}"),
    "kubectl with stamps": _each(lambda line: f"2024-05-01T10:00:00.123456789Z {line}"),
    "milliseconds of a shipper": _each(lambda line: f"1714557600000\t{line}"),
    "Slurm's label": _each(lambda line: line if _RANKED.search(line) else f"0: {line}"),
    "loguru": _each(lambda line: f"2024-05-01 10:00:00.123 | INFO     | __main__:train:42 - {line}"),
    "absl": _each(lambda line: f"I0501 10:00:00.123456 140123456789 train.py:42] {line}"),
    "structlog": _each(lambda line: f"2024-05-01T10:00:00Z [info     ] {line}"),
    "hydra": _each(lambda line: f"[2024-05-01 10:00:00,123][trainer][INFO] - {line}"),
    "numbered": lambda log: "".join(f"{i:6d}\t{line}\n" for i, line in enumerate(log.splitlines(), 1)),
    "every line twice": _each(lambda line: f"{line}\n{line}"),
    "blank lines": _each(lambda line: f"{line}\n"),
    "compose": _each(lambda line: f"trainer-1  | {line}"),
    "colour": _each(lambda line: f"\x1b[32m{line}\x1b[0m"),
    "blanks at the end": _each(lambda line: f"{line}   "),
    "windows": lambda log: log.replace("\n", "\r\n"),
    "other lines between": _each(lambda line: f"{line}\nWARNING: the cache is nearly full, see the manual"),
    "a key more": _each(_with_a_key),
    "a key less": _each(_without_a_key),
    "colour inside": _each(lambda line: _DECIMAL.sub("\x1b[36m\\1\x1b[0m", line)),
    "logger": _each(lambda line: f"INFO - trainer - {line}"),
    "rank tag": _each(lambda line: line if _RANKED.search(line) else f"[rank0]: {line}"),
    "actor": _each(lambda line: f"(TorchTrainer pid=4035) {line}"),
    "emoji": _each(lambda line: f"\U0001f680 {line}"),
    "pane": _each(lambda line: f"│ {line} │"),
    "another program's lines": _each(lambda line: f"{line}\n[nfs] wrote 412 blocks of 4096 in 0.12 s"),
}


_PLAIN_DECIMAL = re.compile(r"(?<=[ =:])(\d+)\.(\d+)(?![\w.:])")
_ANY_POINT = re.compile(r"\d\.\d")


def with_commas(log: str) -> str | None:
    """The log as a program prints it whose locale writes decimals with a comma; None where points would be left, or
    where such a number may be one of thousands (2,990)."""
    changed = _PLAIN_DECIMAL.sub(r"\1,\2", log)
    if changed == log or _ANY_POINT.search(changed) or "," in log:
        return None
    return None if re.search(r"(?<!\d)[1-9]\d{0,2},\d{3}(?!\d)", changed) else changed


def usable(log: str) -> bool:
    return not _UNTOUCHED.search(log) and "{\n" not in log


def fields(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What must stay as it was, run by run; positions and values without their places in the file."""
    return [{f"{a}.{b}": None if run[a] is None else run[a][b] for a, b in FIELDS} for run in runs]


def harm(log: str, name: str) -> tuple[list[str], list[str]]:
    """(fields that changed, fields that were lost) by a mutation."""
    before, after = fields(read(log)), fields(read(MUTATIONS[name](log)))
    if len(before) != len(after):
        return ([f"runs: {len(after)}, were {len(before)}"], []) if after else ([], ["runs"])
    changed, lost = [], []
    for old, new in zip(before, after, strict=True):
        for field, was in old.items():
            now = new[field]
            if now is None and was is not None:
                lost.append(field)
            elif was is not None and now != was and not _alike(field, now, was):
                changed.append(f"{field}: {now}, was {was}")
    return changed, lost


def _alike(field: str, now: Any, was: Any) -> bool:
    """Whether a time is the same but for the source that tells it."""
    return field == "iteration_time.median" and abs(now - was) <= 0.03 * was
