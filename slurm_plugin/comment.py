"""What a user says about an elastic job, in `--comment`, and what the Lua module notes at submission.

The user's word: `horae:` and `name=value` pairs joined by commas, anywhere in the comment, ended by a blank.
`horae:min=1,max=8,app=sweep7,key=resnet50,allowed=1/2/4/8,types=v100/a100,iters=4000,grace=90,ckpt=/scratch/me`

The module's tag, in admin_comment, written once: `horae=NONCE` and the request as it was before it was made
reshapeable: `horae=6f1c..,gpus=4,nodes=2,types=v100,cpus=16,mem=64000`, and what else Slurm counts: `lic=matlab:1`,
`atonce=2` (of `--array=1-9%2`), the managed partition that it came to: `part=gpu`, and of a list of partitions all of
it and those that are Slurm's own: `beside=raw,list=gpu/raw`. A job that keeps its own shape was not changed; its tag
says so, and what it asks of its nodes: `..,shape=own,per=2,fixed=1,nodecpus=8,alone=1,features=ib/nvme`,
`any=v100/k80` (one of these), `on=n[1-2/7]`, `off=n9` (by name, with slashes for commas), and `tasks=8` where Slurm
would forget their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from horae.untrusted import printable
from policy.model import BadInput, Bytes, GpuRange, Gpus

#: What a word may say at most: more GPUs, iterations and seconds than any cluster has, few enough to compute with.
MOST_GPUS, MOST_ITERATIONS, MOST_GRACE_S = 1_000_000, 1e12, 1e6
_LEAST = 1e-3
_MOST_TYPES = 64
KEYS = ("min", "max", "allowed", "app", "key", "types", "prefer", "forbid", "iters", "grace", "ckpt")
_SHOWN = 60  #: of what cannot be read, in the error
_WORD = re.compile(r"(?:^|\s)horae:(\S*)")
#: the nonce names files: letters and digits alone
_TAG = re.compile(r"(?:^|\s)horae=([0-9A-Za-z]{1,64})(?:,(\S*))?(?=\s|$)")
_LICENCE = re.compile(r"(?:^|/)([\w.@\-]{1,64})(?::([0-9]{1,9}))?(?=/|$)")
_NAME = re.compile(r"[\w.@+\-]{1,64}")
_COUNT = re.compile(r"[0-9]{1,7}")
_DIGITS = re.compile(r"[0-9]{1,15}")
_REAL = re.compile(r"[0-9]{0,15}\.?[0-9]{0,15}(?:[eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class UserWord:
    """The `horae:` word, checked. None of its fields is trusted beyond the user's own job."""

    min: Gpus | None = None
    max: Gpus | None = None
    allowed: tuple[Gpus, ...] | None = None
    app: str | None = None
    key: str | None = None
    types: tuple[str, ...] = ()  #: it may run on
    prefer: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    iterations: float | None = None
    grace_s: float | None = None
    checkpoint: str | None = None

    def range(self, requested: Gpus) -> GpuRange:
        """The job's range: from 1 to what it asked for, unless the word says otherwise."""
        if self.allowed is not None:
            return GpuRange(requested, self.allowed[0], self.allowed[-1], self.allowed)
        low = self.min if self.min is not None else min(1, requested)
        high = self.max if self.max is not None else max(requested, low)
        return GpuRange(requested, low, high)


@dataclass(frozen=True, slots=True)
class Tag:
    nonce: str
    gpus: Gpus | None = None
    nodes: int | None = None
    types: tuple[str, ...] = ()
    cpus: int | None = None  #: asked for in all
    memory: Bytes | None = None  #: asked for, a node
    begin_s: float | None = None  #: --begin
    own_shape: bool = False  #: the request stands as its user made it, and is never written
    per_node: Gpus | None = None  #: GPUs on each node, where that is said
    fixed_nodes: bool = False  #: `nodes` is said, or follows; else Slurm chooses
    node_cpus: int | None = None
    alone: bool = False  #: --exclusive
    held: bool = False  #: waits held, not parked: it has a deadline
    features: tuple[str, ...] = ()  #: and `any v100,k80`, `on n[1-2,7]`, `off n9`: words that Slurm's features are not
    at_once: int | None = None  #: tasks of its array that may run at a time
    licences: tuple[tuple[str, int], ...] = ()
    beside: tuple[str, ...] = ()  #: of its list of partitions Slurm's own: there it waits as anybody does
    partitions: tuple[str, ...] = ()  #: its list
    partition: str = ""  #: the managed one that it came to
    tasks: int | None = None  #: said in each update: Slurm would lose them (`--ntasks-per-gpu`)
    mail: int = 0  #: what its user wants to be written about, in Slurm's bits


def parse_word(comment: str, where: str = "--comment") -> UserWord | None:
    """The user's word in `comment`; None where there is none. Raises BadInput that names the key to mend."""
    match = _WORD.search(comment)
    if not match:
        return None
    pairs = _pairs(match.group(1), where)
    unknown = next((key for key in pairs if key not in KEYS), None)
    if unknown is not None:
        raise BadInput(
            f"there is no '{printable(unknown, _SHOWN)}'",
            where=where,
            field=printable(unknown, _SHOWN),
            value=printable(pairs[unknown], _SHOWN),
            remedy=f"one of {', '.join(KEYS)}",
        )
    allowed: tuple[Gpus, ...] | None = None
    if "allowed" in pairs:
        allowed = tuple(sorted({_count(part, "allowed", where) for part in pairs["allowed"].split("/")}))
        if "min" in pairs or "max" in pairs:
            raise BadInput("is the whole range", where=where, field="allowed", remedy="leave out min and max")
    low = _count(pairs["min"], "min", where) if "min" in pairs else None
    high = _count(pairs["max"], "max", where) if "max" in pairs else None
    if low is not None and high is not None and low > high:
        raise BadInput(f"min={low} is above max={high}", where=where, field="min", value=low)
    return UserWord(
        min=low,
        max=high,
        allowed=allowed,
        app=_name(pairs, "app", where),
        key=_name(pairs, "key", where),
        types=_types(pairs, "types", where),
        prefer=_types(pairs, "prefer", where),
        forbid=_types(pairs, "forbid", where),
        iterations=_positive(pairs, "iters", MOST_ITERATIONS, where),
        grace_s=_positive(pairs, "grace", MOST_GRACE_S, where),
        checkpoint=_path(pairs, where),
    )


@lru_cache(maxsize=1 << 16)  # every round reads the whole queue again
def parse_tag(admin_comment: str) -> Tag | None:
    """The module's tag; None for a job that it has not seen. Never raises. The last one counts: the module writes
    behind what stands there."""
    found = _TAG.findall(admin_comment)
    if not found:
        return None
    nonce, rest = found[-1]
    pairs = dict(item.split("=", 1) for item in rest.split(",") if "=" in item)
    memory = _digits(pairs, "mem")
    return Tag(
        nonce=nonce,
        gpus=_digits(pairs, "gpus"),
        nodes=_digits(pairs, "nodes"),
        types=tuple(part for part in pairs.get("types", "").split("/") if part),
        cpus=_digits(pairs, "cpus"),
        memory=memory << 20 if memory is not None else None,
        begin_s=_digits(pairs, "begin"),
        mail=_digits(pairs, "mail") or 0,
        partition=next(iter(_partitions(pairs, "part")), ""),
        tasks=_digits(pairs, "tasks"),
        beside=_partitions(pairs, "beside"),
        partitions=_partitions(pairs, "list"),
        at_once=_digits(pairs, "atonce"),
        licences=tuple((name, max(int(count or 1), 1)) for name, count in _LICENCE.findall(pairs.get("lic", ""))),
        own_shape=pairs.get("shape") == "own",
        per_node=_digits(pairs, "per"),
        fixed_nodes=pairs.get("fixed") == "1",
        node_cpus=_digits(pairs, "nodecpus"),
        alone=pairs.get("alone") == "1",
        held=pairs.get("held") == "1",
        features=(
            *(part for part in pairs.get("features", "").split("/") if part),
            *(f"{word} {pairs[word].replace('/', ',')}" for word in ("any", "on", "off") if pairs.get(word)),
        ),
    )


def tag_text(admin_comment: str) -> str:
    """The word itself; empty where there is none."""
    found = list(_TAG.finditer(admin_comment))
    return found[-1][0].strip() if found else ""


def _pairs(text: str, where: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not value:
            shown = printable(item, _SHOWN)
            raise BadInput(f"'{shown}' is not name=value", where=where, field="horae:", value=shown)
        if key in pairs:
            raise BadInput("is said twice", where=where, field=printable(key, _SHOWN), value=printable(value, _SHOWN))
        pairs[key] = value
    return pairs


def _count(text: str, key: str, where: str) -> Gpus:
    if not _COUNT.fullmatch(text) or not 1 <= int(text) <= MOST_GPUS:
        shown, remedy = printable(text, _SHOWN), f"a number from 1 to {MOST_GPUS}"
        raise BadInput(f"'{shown}' is not a number of GPUs", where=where, field=key, value=shown, remedy=remedy)
    return int(text)


def _name(pairs: Mapping[str, str], key: str, where: str) -> str | None:
    value = pairs.get(key)
    if value is not None and not _NAME.fullmatch(value):
        shown, remedy = printable(value, _SHOWN), "letters, digits . _ - @ +"
        raise BadInput(f"'{shown}' is not a name", where=where, field=key, value=shown, remedy=remedy)
    return value


def _types(pairs: Mapping[str, str], key: str, where: str) -> tuple[str, ...]:
    types = tuple(part for part in pairs.get(key, "").split("/") if part)
    for each in types:
        _name({key: each}, key, where)
    if len(types) > _MOST_TYPES:
        raise BadInput(f"names {len(types)} types", where=where, field=key, remedy=f"at most {_MOST_TYPES}")
    return types


def _path(pairs: Mapping[str, str], where: str) -> str | None:
    value = pairs.get("ckpt")
    if value is not None and not value.isprintable():
        shown = printable(value, _SHOWN)
        raise BadInput(f"'{shown}' holds control characters", where=where, field="ckpt", value=shown)
    return value


def _positive(pairs: Mapping[str, str], key: str, most: float, where: str) -> float | None:
    if key not in pairs:
        return None
    text = pairs[key]
    try:
        value = float(text) if _REAL.fullmatch(text) else 0.0
    except ValueError:
        value = 0.0
    if not _LEAST <= value <= most:
        shown, remedy = printable(text, _SHOWN), f"a number from {_LEAST:g} to {most:g}"
        raise BadInput(f"'{shown}' is not a positive number", where=where, field=key, value=shown, remedy=remedy)
    return value


def _partitions(pairs: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(part for part in pairs.get(key, "").split("/") if _NAME.fullmatch(part))


def _digits(pairs: Mapping[str, str], key: str) -> int | None:
    text = pairs.get(key, "")
    return int(text) if _DIGITS.fullmatch(text) else None
