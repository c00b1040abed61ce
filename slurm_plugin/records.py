"""What one read of Slurm says, free of its spelling: rows of jobs and nodes, and the parsers of Slurm's words.

Units: seconds, GPUs, bytes; absent is None, never 0, "N/A" or "(null)".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from policy.model import EMPTY, Bytes, Gpus

_NOTHING = frozenset({"", "N/A", "(null)", "n/a", "None assigned", "Unknown", "INVALID", "NOT_SET"})
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_IDENTITY = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10})?")
_DURATION = re.compile(r"^(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})$")
#: at most 999,999 of them: what is above is no request that a cluster could have taken. A type may be digits alone
#: (`gpu:3090:2`); without a count behind it those are the count.
_GPUS = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?P<type>[A-Za-z0-9_.\-]+(?=[:=][0-9])|[0-9]*[A-Za-z_][A-Za-z0-9_.\-]*))?"
    r"(?:[:=](?P<count>[0-9]{1,6}))?(?=[,(]|$)"
)
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")
_MOST_NODES = 100_000
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([KMGT]?)")
_SUFFIX = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class End(NamedTuple):
    """How a job ended that slurmctld has forgotten, by slurmdbd."""

    state: str
    exit_code: int
    at_s: float | None


class BadRecord(ValueError):
    """A record that cannot be Slurm's own word: it is set aside, and says nothing about any job."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, or one task of an array, as squeue shows it."""

    id: str  #: `161`, or `161_2` for a task of an array
    slurm_id: int  #: the JobId that signals take; the array's own for a task that was not split off yet
    state: str
    reason: str | None
    restarts: int
    priority: int  #: 0: held
    nodes: tuple[str, ...]
    gpus_per_node: Gpus | None  #: of the request as it now stands
    gpus_total: Gpus | None
    num_nodes: int
    num_cpus: int
    alloc_memory: Bytes | None
    comment: str
    admin_comment: str
    user: str
    uid: int
    account: str | None
    qos: str | None
    partition: str
    name: str
    cwd: str
    command: str | None
    stdout: str | None
    dependency: str | None
    submit_s: float | None
    eligible_s: float | None
    start_s: float | None
    end_s: float | None
    preempt_s: float | None
    limit_s: float | None
    left_s: float | None
    exit_status: int | None  #: wait status of the batch script
    feature: str | None = None
    requeue: bool = True  #: whether Slurm may start it again
    #: GPUs by node of a running job that asked for a total over several nodes, where that is known
    split: tuple[tuple[str, Gpus], ...] = ()

    @property
    def held(self) -> bool:
        return self.priority == 0

    @property
    def exit_code(self) -> int | None:
        """The shell's view: 0..255, 128 + n for signal n."""
        if self.exit_status is None:
            return None
        signal = self.exit_status & 0x7F
        return 128 + signal if signal else (self.exit_status >> 8) & 0xFF


@dataclass(frozen=True, slots=True)
class NodeRow:
    name: str
    gpu_types: Mapping[str, Gpus]  #: type -> configured
    used: Gpus  #: by everybody
    state: str  #: lower case, with flags joined by '+' and Slurm's marks ('*' '$' ...) kept
    cpus_idle: int
    cpus_total: int
    memory: Bytes
    memory_used: Bytes
    features: tuple[str, ...] = ()  #: that it has now: those that it may have are no more than words to a constraint
    registered: bool = True  #: whether it has told of itself since slurmctld began; True where that is not said


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change between two `scontrol reconfigure`: read once, and again when the version changes."""

    version: str
    cluster: str
    partitions: tuple[str, ...]
    select: str
    priority_type: str
    exit_hold: frozenset[int]  #: RequeueExitHold
    min_job_age_s: float
    kill_wait_s: float
    accounting: bool
    private: frozenset[str]
    racks: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: node -> leaf switch
    requests: tuple[float, float] | None = None  #: slurmctld's own limit for us: a second, and in a burst
    slurm_user: str = ""
    #: DefCpuPerGPU by partition; under "" the cluster's own
    default_cpus: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    enforced: frozenset[str] = frozenset()  #: AccountingStorageEnforce
    partition_qos: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    most_nodes: Mapping[str, int] = field(default_factory=lambda: EMPTY)  #: MaxNodes by partition, where there is one
    most_cpus: Mapping[str, int] = field(default_factory=lambda: EMPTY)  #: MaxCPUsPerNode, likewise
    #: the setting by which nodes of a partition are one job's, or one user's, alone
    alone: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    resume_s: float = 0.0  #: ResumeTimeout: until a node that was powered down must be back
    ahead_s: float = 0.0  #: slurmctld's clock before ours, negative behind; 0 where that is too little to matter

    @property
    def release(self) -> tuple[int, int]:
        """(0, 0) where the version is none."""
        found = _RELEASE.match(self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def multifactor(self) -> bool:
        return "multifactor" in self.priority_type

    @property
    def memory_counts(self) -> bool:
        return "MEMORY" in self.select.upper()


def word(text: str) -> str | None:
    """A field's text, None where Slurm means "nothing"."""
    text = text.strip()
    return None if text in _NOTHING else text


def number(text: str) -> int | None:
    text = text.strip()
    return int(text) if _NUMBER.fullmatch(text) else None


def identity(text: str) -> str:
    """`161`, or `161_2`. Raises BadRecord: it names files and stands in commands."""
    text = text.strip()
    if not _IDENTITY.fullmatch(text):
        raise BadRecord(f"{text[:40]!r} is no job's number")
    return text


def stamp(text: str) -> float | None:
    """An epoch time under SLURM_TIME_FORMAT=%s; 0 is Slurm's "not set"."""
    value = number(text)
    return float(value) if value else None


def duration(text: str) -> float | None:
    """`D-HH:MM:SS`, `HH:MM:SS` or `MM:SS` -> seconds; UNLIMITED, N/A and the like -> None."""
    match = _DURATION.match(text.strip())
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def size(text: str) -> Bytes | None:
    """`62.50G`, `500M`, `64000` (megabytes, Slurm's default) -> bytes."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        return None
    return int(float(match.group(1)) * _SUFFIX[match.group(2) or "M"])


def gpus(text: str) -> dict[str, Gpus]:
    """`gpu:v100:2(S:0-1),gpu:1`, `gres:gpu:2`, `gres/gpu=4` -> {type or "gpu": count}; a bare `gpu` counts 1."""
    flat = re.sub(r"\([^)]*\)", "", text)
    found: dict[str, Gpus] = {}
    for match in _GPUS.finditer(flat):
        kind = match["type"] or "gpu"
        found[kind] = found.get(kind, 0) + int(match["count"] or 1)
    return found


def gpu_count(text: str) -> Gpus | None:
    """All GPUs of such a text, whatever the type; None where it names none."""
    found = gpus(text)
    return sum(found.values()) if found else None


_PARTS = re.compile(
    r"(?:^|,)(?:gres[:/])?(?:shard|mps)(?::[^,():]+)*:(?P<count>[0-9]{1,6})(?:\((?P<each>[^)]*)\))?(?=,|$)"
)

_SHARE = re.compile(r"(?:^|,)([0-9]{1,9})/[0-9]{1,9}(?=,|$)")


def gpus_in_use(text: str) -> Gpus:
    """Of a node's GresUsed: GPUs that jobs have whole, and those of which jobs have parts, which nobody can have whole:
    `gpu:v100:1(IDX:0),shard:v100:5(0/4,4/4,1/4,0/4)` is 3. Where the parts' GPUs are not told, each part is one."""
    whole = gpu_count(text) or 0
    for part in _PARTS.finditer(text):
        told = _SHARE.findall(part["each"] or "")  # of one that is idle some releases say `(IDX:N/A)`
        whole += sum(int(used) > 0 for used in told) if told else int(part["count"])
    return whole


def tres(text: str) -> dict[str, str]:
    """`cpu=2,mem=1000M,node=2,gres/gpu=4` -> a map."""
    return dict(item.split("=", 1) for item in text.split(",") if "=" in item)


def expand(hostlist: str | None) -> tuple[str, ...]:
    """`n[1-2],x5` -> names, in Slurm's order of lists (sorted)."""
    if not hostlist or _too_many(hostlist):
        return ()
    try:
        return tuple(NodeSet(hostlist))
    except (NodeSetParseError, ValueError, OverflowError):
        return ()


def _too_many(hostlist: str) -> bool:
    """Whether its ranges stand for more nodes than any cluster has, or its numbers for none."""
    if re.search(r"[0-9]{16}", hostlist):
        return True
    nodes = 1
    for ranges in re.findall(r"\[([^\]]*)\]", hostlist):
        sizes = [int(high) - int(low) + 1 for low, high in re.findall(r"([0-9]+)-([0-9]+)", ranges)]
        if sum(sizes) > _MOST_NODES:
            return True
        joined = re.search(re.escape(f"[{ranges}]") + r"[^,\[]*\[", hostlist)  # several dimensions multiply
        nodes *= max(sum(sizes), 1) if joined else 1
    return nodes > _MOST_NODES


def fold(names: list[str] | tuple[str, ...]) -> str:
    return str(NodeSet.fromlist(list(names)))
