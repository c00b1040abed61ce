"""`scontrol show assoc_mgr flags=qos,assoc` -> limits on GPUs and jobs, and what is used of each; licences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from policy.model import Gpus

_WORD = re.compile(r"(\w+)=(\S*)")
_OF = re.compile(r"([0-9]{1,12}|N)\(([0-9]{1,12})\)")
_GPUS = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,9}|N)(?:\(([0-9]{1,9})\))?(?=,|$)")


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit with what is used of it; `most` None: no limit."""

    most: int | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class Limited:
    """GPUs and running jobs of whoever it binds."""

    gpus: Bound = Bound()
    jobs: Bound = Bound()


@dataclass(frozen=True, slots=True)
class QosLimits:
    name: str
    group: Limited = Limited()
    users: dict[str, Limited] = field(default_factory=dict)  #: of each user's jobs in it
    accounts: dict[str, Limited] = field(default_factory=dict)
    job_gpus: Gpus | None = None  #: of one job


@dataclass(frozen=True, slots=True)
class AssociationLimits:
    """Of an account (`user` empty; its accounts below count too) or of a user in it."""

    account: str
    user: str
    partition: str
    parent: str
    group: Limited = Limited()
    jobs: Bound = Bound()  #: MaxJobs
    job_gpus: Gpus | None = None


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
        _limited(words, "GrpTRES", "GrpJobs"),
        {name: _limited(_words(lines), "MaxTRESPU", "MaxJobsPU") for name, lines in users.items()},
        {name: _limited(_words(lines), "MaxTRESPA", "MaxJobsPA") for name, lines in accounts.items()},
        _gpus(words.get("MaxTRESPJ", "")).most,
    )


def _association(words: dict[str, str]) -> AssociationLimits:
    return AssociationLimits(
        words.get("Account", ""),
        _bare(words.get("UserName", "")),
        words.get("Partition", ""),
        _bare(words.get("ParentAccount", "")),
        _limited(words, "GrpTRES", "GrpJobs"),
        _count(words.get("MaxJobs", "")),
        _gpus(words.get("MaxTRESPJ", "")).most,
    )


def _words(lines: list[str]) -> dict[str, str]:
    return dict(_WORD.findall(" ".join(lines)))


def _limited(words: dict[str, str], gpus: str, jobs: str) -> Limited:
    return Limited(_gpus(words.get(gpus, "")), _count(words.get(jobs, "")))


def _gpus(text: str) -> Bound:
    found = _GPUS.search(text)
    return Bound() if found is None else Bound(_most(found[1]), int(found[2] or 0))


def _count(text: str) -> Bound:
    """`3(1)`, `N(1)`; nothing where no limit is set."""
    found = _OF.fullmatch(text)
    return Bound() if found is None else Bound(_most(found[1]), int(found[2]))


def _most(text: str) -> int | None:
    return None if text == "N" else int(text)


def _bare(text: str) -> str:
    """`alice(2001)` -> `alice`."""
    return text.partition("(")[0]
