"""`scontrol show assoc_mgr flags=qos,assoc` -> limits on GPUs, jobs and what goes with GPUs, what is used of each;
`sacctmgr show qos` -> how a QOS's limits go with others', which slurmctld does not show; licences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from policy.model import EMPTY

_WORD = re.compile(r"(\w+)=(\S*)")
_OF = re.compile(r"([0-9]{1,12}|N)\(([0-9]{1,12})\)")
#: What a job has the more of the more GPUs it has: CPUs, MiB of memory, GPUs, and GPUs of one type; and nodes.
_TRES = re.compile(r"(?:^|,)(cpu|mem|node|gres/gpu(?::[\w.-]{1,64})?)=([0-9]{1,15}|N)(?:\(([0-9]{1,15})\))?(?=,|$)")
_GPUS, _NODES = "gres/gpu", "node"
#: A QOS, its flags and its LimitFactor
_RULES = re.compile(r"([^|]+)\|([\w,]*)\|([0-9]{1,9}(?:\.[0-9]{1,9})?)?")


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit with what is used of it; `most` None: no limit."""

    most: int | None = None
    used: int = 0


#: Those of `Limited` that are its own
BOUNDS = ("gpus", "jobs", "minutes", "ahead", "nodes", "per_node")


@dataclass(frozen=True, slots=True)
class Limited:
    """GPUs, running jobs, and what goes with their GPUs, of whoever it binds; minutes of GPUs."""

    gpus: Bound = Bound()
    jobs: Bound = Bound()
    beside: Mapping[str, Bound] = field(default_factory=lambda: EMPTY)  #: by TRES, where there is a limit
    minutes: Bound = Bound()  #: that have been used up
    ahead: Bound = Bound()  #: that running jobs may use yet, by their time limits
    nodes: Bound = Bound()
    per_node: Bound = Bound()  #: GPUs of one job on a node

    @property
    def binds(self) -> bool:
        return any(bound.most is not None for bound in self.each().values())

    def each(self) -> dict[str, Bound]:
        """All bounds by a name of each."""
        return {**{name: getattr(self, name) for name in BOUNDS}, **self.beside}

    @property
    def used_up(self) -> bool:
        """Whether no minute is left, whatever runs."""
        return self.minutes.most is not None and self.minutes.used >= self.minutes.most

    def minutes_left(self, safe: bool) -> int | None:
        """GPU minutes that a start may ask for, by its time limit; None: any. `safe`: whether it must be able to use
        them all (`AccountingStorageEnforce=safe`)."""
        left: list[int] = []
        if self.ahead.most is not None:
            left.append(self.ahead.most - self.ahead.used)
        if self.minutes.most is not None:
            unused = self.minutes.most - self.minutes.used
            if safe:
                left.append(unused - self.ahead.used)
            elif unused <= 0:
                left.append(0)
        return max(min(left), 0) if left else None


@dataclass(frozen=True, slots=True)
class QosRules:
    before_partition: bool = False  #: what it limits goes before the limits of a partition's QOS (OverPartQOS)
    any_nodes: bool = False  #: a partition's MaxNodes does not bind jobs in it (PartitionMaxNodes)
    factor: float | None = None  #: by which limits of associations are multiplied for jobs in it (LimitFactor)


@dataclass(frozen=True, slots=True)
class QosLimits:
    name: str
    group: Limited = Limited()
    users: dict[str, Limited] = field(default_factory=dict)  #: of each user's jobs in it
    accounts: dict[str, Limited] = field(default_factory=dict)
    job: Limited = Limited()  #: of one job
    least: int | None = None  #: GPUs of one job


@dataclass(frozen=True, slots=True)
class AssociationLimits:
    """Of an account (`user` empty; its accounts below count too) or of a user in it."""

    account: str
    user: str
    partition: str
    parent: str
    group: Limited = Limited()
    jobs: Bound = Bound()  #: MaxJobs
    job: Limited = Limited()  #: of one job


@dataclass(frozen=True, slots=True)
class SiteLimits:
    qos: dict[str, QosLimits] = field(default_factory=dict)
    associations: dict[tuple[str, str, str], AssociationLimits] = field(default_factory=dict)


def read(text: str) -> SiteLimits:
    """What is not understood binds nobody: Slurm itself keeps its limits."""
    found = SiteLimits()
    for record in _records(text):
        first = record[0].split("=", 1)[0]
        if first == "QOS":
            qos = _qos(record)
            found.qos[qos.name] = qos
        else:
            association = _association(_words(record))
            found.associations[association.account, association.user, association.partition] = association
    return found


def rules(text: str) -> dict[str, QosRules]:
    """`sacctmgr -nP show qos format=name,flags,limitfactor` -> by QOS; what is not understood is not set."""
    found = {}
    for line in text.splitlines():
        told = _RULES.fullmatch(line)
        if told is not None:
            flags = told[2].split(",")
            factor = float(told[3]) if told[3] else None
            found[told[1]] = QosRules("OverPartQOS" in flags, "PartitionMaxNodes" in flags, factor)
    return found


def throttle(text: str) -> int | None:
    """`scontrol show job ARRAY` -> how many of its tasks may run at a time. Its user's words stand behind that."""
    found = re.match(r"JobId=\d+ ArrayJobId=\d+ ArrayTaskId=\S+ ArrayTaskThrottle=([0-9]{1,9}) ", text)
    return int(found[1]) if found else None


def licences(text: str) -> dict[str, Bound]:
    """`scontrol show licenses` -> how many there are, and are in use, by name."""
    found = re.findall(r"LicenseName=(\S+)\s+Total=([0-9]{1,9}) Used=([0-9]{1,9})", text)
    return {name: Bound(int(total), int(used)) for name, total, used in found}


def _records(text: str) -> Iterator[list[str]]:
    record: list[str] = []
    for line in [each.strip() for each in text.splitlines()] + ["QOS="]:
        if line.startswith(("ClusterName=", "QOS=")):
            if record:
                yield record
            record = [line]
        elif line.endswith(" Records"):
            if record:
                yield record
            record = []
        elif record and line:
            record.append(line)


def _qos(record: list[str]) -> QosLimits:
    own: list[str] = []
    users: dict[str, list[str]] = {}
    accounts: dict[str, list[str]] = {}
    into, section = own, None
    for line in record:
        if line in ("Account Limits", "User Limits"):
            section = accounts if line.startswith("Account") else users
        elif section is not None and "=" not in line:
            into = section.setdefault(_bare(line), [])
        else:
            into.append(line)
    words = _words(own)
    return QosLimits(
        _bare(words.get("QOS", "")),
        _limited(words, "GrpTRES", "GrpJobs", "GrpTRESMins", "GrpTRESRunMins"),
        {name: _each(_words(lines), "PU") for name, lines in users.items()},
        {name: _each(_words(lines), "PA") for name, lines in accounts.items()},
        _of_a_job(words),
        _tres(words.get("MinTRESPJ", "")).get(_GPUS, Bound()).most,
    )


def _association(words: dict[str, str]) -> AssociationLimits:
    return AssociationLimits(
        words.get("Account", ""),
        _bare(words.get("UserName", "")),
        words.get("Partition", ""),
        _bare(words.get("ParentAccount", "")),
        _limited(words, "GrpTRES", "GrpJobs", "GrpTRESMins", "GrpTRESRunMins"),
        _count(words.get("MaxJobs", "")),
        _of_a_job(words),
    )


def _words(lines: list[str]) -> dict[str, str]:
    return dict(_WORD.findall(" ".join(lines)))


def _each(words: dict[str, str], whose: str) -> Limited:
    """Of each user (`PU`) or account (`PA`) in a QOS."""
    return _limited(words, f"MaxTRES{whose}", f"MaxJobs{whose}", ahead=f"MaxTRESRunMins{whose}")


def _of_a_job(words: dict[str, str]) -> Limited:
    per_node = _tres(words.get("MaxTRESPN", "")).get(_GPUS, Bound())
    return replace(_limited(words, "MaxTRESPJ", minutes="MaxTRESMinsPJ"), per_node=per_node)


def _limited(words: dict[str, str], tres: str, jobs: str = "", minutes: str = "", ahead: str = "") -> Limited:
    """By the names of what limits each."""
    told = _tres(words.get(tres, ""))
    nodes = told.pop(_NODES, Bound())
    return Limited(
        told.pop(_GPUS, Bound()),
        _count(words.get(jobs, "")),
        {name: bound for name, bound in told.items() if bound.most is not None},
        _tres(words.get(minutes, "")).get(_GPUS, Bound()),
        _tres(words.get(ahead, "")).get(_GPUS, Bound()),
        nodes,
    )


def _tres(text: str) -> dict[str, Bound]:
    return {name: Bound(_most(most), int(used or 0)) for name, most, used in _TRES.findall(text)}


def _count(text: str) -> Bound:
    """`3(1)`, `N(1)`; nothing where no limit is set."""
    found = _OF.fullmatch(text)
    return Bound() if found is None else Bound(_most(found[1]), int(found[2]))


def _most(text: str) -> int | None:
    return None if text == "N" else int(text)


def _bare(text: str) -> str:
    """`alice(2001)` -> `alice`."""
    return text.partition("(")[0]
