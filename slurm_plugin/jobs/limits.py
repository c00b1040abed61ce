"""`scontrol show assoc_mgr flags=qos,assoc` -> limits on GPUs, CPUs and jobs, what is used of each; licences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_WORD = re.compile(r"(\w+)=(\S*)")
_OF = re.compile(r"([0-9]{1,12}|N)\(([0-9]{1,12})\)")
_TRES = re.compile(r"(?:^|,)(gres/gpu|cpu)=([0-9]{1,9}|N)(?:\(([0-9]{1,9})\))?(?=,|$)")


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit with what is used of it; `most` None: no limit."""

    most: int | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class Limited:
    """GPUs, running jobs, and their CPUs, of whoever it binds; minutes of GPUs."""

    gpus: Bound = Bound()
    jobs: Bound = Bound()
    cpus: Bound = Bound()
    minutes: Bound = Bound()  #: that have been used up
    ahead: Bound = Bound()  #: that running jobs may use yet, by their time limits

    @property
    def binds(self) -> bool:
        bounds = (self.gpus, self.jobs, self.cpus, self.minutes, self.ahead)
        return any(bound.most is not None for bound in bounds)

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
class QosLimits:
    name: str
    group: Limited = Limited()
    users: dict[str, Limited] = field(default_factory=dict)  #: of each user's jobs in it
    accounts: dict[str, Limited] = field(default_factory=dict)
    job: Limited = Limited()  #: of one job


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
        _limited(words, "MaxTRESPJ", minutes="MaxTRESMinsPJ"),
    )


def _association(words: dict[str, str]) -> AssociationLimits:
    return AssociationLimits(
        words.get("Account", ""),
        _bare(words.get("UserName", "")),
        words.get("Partition", ""),
        _bare(words.get("ParentAccount", "")),
        _limited(words, "GrpTRES", "GrpJobs", "GrpTRESMins", "GrpTRESRunMins"),
        _count(words.get("MaxJobs", "")),
        _limited(words, "MaxTRESPJ", minutes="MaxTRESMinsPJ"),
    )


def _words(lines: list[str]) -> dict[str, str]:
    return dict(_WORD.findall(" ".join(lines)))


def _each(words: dict[str, str], whose: str) -> Limited:
    """Of each user (`PU`) or account (`PA`) in a QOS."""
    return _limited(words, f"MaxTRES{whose}", f"MaxJobs{whose}", ahead=f"MaxTRESRunMins{whose}")


def _limited(words: dict[str, str], tres: str, jobs: str = "", minutes: str = "", ahead: str = "") -> Limited:
    """By the names of what limits each."""
    return Limited(
        _tres(words.get(tres, ""), "gres/gpu"),
        _count(words.get(jobs, "")),
        _tres(words.get(tres, ""), "cpu"),
        _tres(words.get(minutes, ""), "gres/gpu"),
        _tres(words.get(ahead, ""), "gres/gpu"),
    )


def _tres(text: str, name: str) -> Bound:
    told = {of: Bound(_most(most), int(used or 0)) for of, most, used in _TRES.findall(text)}
    return told.get(name, Bound())


def _count(text: str) -> Bound:
    """`3(1)`, `N(1)`; nothing where no limit is set."""
    found = _OF.fullmatch(text)
    return Bound() if found is None else Bound(_most(found[1]), int(found[2]))


def _most(text: str) -> int | None:
    return None if text == "N" else int(text)


def _bare(text: str) -> str:
    """`alice(2001)` -> `alice`."""
    return text.partition("(")[0]
