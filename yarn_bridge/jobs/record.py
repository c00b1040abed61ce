"""What the bridge keeps of one job, in HDFS beside what its workers write: enough to go on after a kill anywhere.

    ROOT/kept/records/JOB       what was granted and how far it has come, a `Record`      the bridge (`kept.py`)
              specs/JOB         what the user asked for                                   written once
    ROOT/jobs/JOB/gate          what the workers are told (yarn_bridge/on_node/gate.py)         the bridge
                  launch.sh     what a worker's container runs                            the bridge
                  members/ acks/
                  yarn_bridge/on_node/gate.py
                  log/EPOCH     output of rank 0, a file an epoch
                  yarn_bridge/on_node/mirror.py
    ROOT/jobs/.claim            the arbiter that claimed the cluster last
    ROOT/lib/                   the in-job part of Horae, one file a version

All but the log is replaced atomically; all but log, script and lib/ are documents kept in attributes
(horae/elastic/stores/attributes.py). A record is written before what it says is done, and what it says can be done
again, so
whoever reads it can carry on. The gate follows from the record and comes after it: whoever reads a record for the
first time sees to it that the gate says the same. Everything in JOB/ belongs to the job's owner, who may change it:
it is read through `user_files.py`. Once the record stood in the gate, and the specification beside it (`SPEC`):
such folders are adopted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from horae.port import Blocked, BlockKind, CheckpointMark, JobId, JobState
from yarn_bridge.options import SERVICES

CLAIM = "claim"
GATE, SPEC, LAUNCH = "gate", "spec", "launch.sh"
#: what YARN is told of each application that the bridge kills, and says of it afterwards
ENDED_BY_US = "ended by Horae"
#: Of a record: whatever changes in it raises this, and older bridges refuse it in words. Records without are of form 1.
FORM = 1


class TooNew(ValueError):
    """It is whole, and not for us."""


class Phase(StrEnum):
    IDLE = "idle"  #: holds nothing; `outcome` is its state
    FORMING = "forming"  #: granted; its gang does not stand yet
    OPEN = "open"  #: the gate is open, its gang trains
    LEAVING = "leaving"  #: the gate says stop; acknowledgements come in
    CLEARING = "clearing"  #: decided; its containers go


@dataclass(frozen=True, slots=True)
class Worker:
    """A member of the gang: one container, with one GPU where its job does not say otherwise."""

    name: str  #: the container's id
    node: str
    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    job: JobId
    owner: str
    service: str  #: name of its YARN service
    submitted_s: float
    phase: Phase = Phase.IDLE
    outcome: JobState = JobState.QUEUED  #: what it is when idle, or will be when cleared
    since_s: float = 0.0
    epoch: int = 0  #: of the newest gate that opened
    granted: int = 0  #: epoch of the newest grant
    allocation: tuple[tuple[str, int], ...] = ()  #: the grant: node -> GPUs
    workers: tuple[Worker, ...] = ()  #: of the open gate, in the order of their ranks
    components: tuple[tuple[str, str], ...] = ()  #: node -> component of the service; "*": any node
    stop_s: float | None = None  #: when it was asked to leave, by us or because a part of it ended
    asked: bool = False  #: an arbiter asked
    grace_s: float = 0.0
    next: tuple[int, tuple[tuple[str, int], ...]] | None = None  #: a reshape's epoch and grant, once it has left
    ahead: tuple[tuple[str, int], ...] = ()  #: component -> containers, as flexed for `next` before all have left
    failures: int = 0
    exit_code: int | None = None
    native: str = ""
    checkpoint: tuple[int, float, float] | None = None  #: epoch, step, time
    blocked: tuple[str, str] | None = None
    released: bool = False
    runtime: str = SERVICES  #: of the newest grant
    each: int = 1  #: GPUs of a worker; 0: a job without any, which YARN alone decides about
    count: int = 0  #: workers of a job without GPUs
    anew: bool = False  #: YARN still asks for containers of its service: it goes, and the next grant makes another

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.allocation)

    @property
    def size(self) -> int:
        """How many workers its grant is for."""
        return self.gpus // self.each if self.each else self.count

    @property
    def placed(self) -> dict[str, int]:
        """Where its GPUs are: the workers' nodes once they are known, the grant until then."""
        if not self.workers:
            return dict(self.allocation)
        found: dict[str, int] = {}
        for worker in self.workers:
            found[worker.node] = found.get(worker.node, 0) + self.each
        return found if self.each else {}

    @property
    def claims(self) -> dict[str, int]:
        """Where its GPUs are or may come to be while it changes its shape."""
        found = self.placed
        for node, gpus in self.next[1] if self.next is not None else ():
            found[node] = max(gpus, found.get(node, 0))
        return found

    @property
    def held(self) -> dict[str, int]:
        """Where it has GPUs, or may come to."""
        return {} if self.phase is Phase.IDLE else self.claims

    @property
    def mark(self) -> CheckpointMark | None:
        return None if self.checkpoint is None else CheckpointMark(*self.checkpoint)

    @property
    def block(self) -> Blocked | None:
        return None if self.blocked is None else Blocked(BlockKind(self.blocked[0]), self.blocked[1])

    def into(self, phase: Phase, now_s: float, **changes: Any) -> Record:
        return replace(self, phase=phase, since_s=now_s, **changes)


def gate_document(record: Record) -> dict[str, Any]:
    """What the workers read: open to the record's workers, asking them to leave, or closed for good."""
    listed = [{"name": each.name, "gpus": 1, "host": each.host} for each in record.workers]
    if record.phase is Phase.OPEN:
        first = record.workers[0]
        return {"epoch": record.epoch, "state": "open", "members": listed, "port": first.port}
    if record.outcome.ended and record.phase in (Phase.CLEARING, Phase.IDLE):
        return {"epoch": record.epoch, "state": "closed"}
    return {"epoch": record.epoch, "state": "stop", "members": listed, "grace_s": record.grace_s}


def encode(record: Record) -> bytes:
    """The gate, for the job's folder."""
    return json.dumps(gate_document(record), sort_keys=True).encode() + b"\n"


def encode_kept(record: Record) -> bytes:
    """The record, for where only the bridge writes."""
    value = {"form": FORM, **asdict(record)}
    return json.dumps(value, sort_keys=True).encode() + b"\n"


def decode_kept(data: bytes) -> Record:
    """Raises ValueError for anything that `encode_kept` did not write."""
    try:
        value = json.loads(data)
        form = value.get("form", 1) if isinstance(value, dict) else None
        if isinstance(form, int) and form > FORM:
            raise TooNew(f"was written by a newer Horae (form {form}; this one knows {FORM})")
        return record_of(value)
    except RecursionError:
        raise ValueError("not a record: it is nested too deeply") from None


_RECORD = TypeAdapter(Record)


def record_of(value: Any) -> Record:
    """Raises ValueError for anything that is not a record's fields, each of its type: who reads it asks no more."""
    try:
        found = dict(value)
        known = {field.name for field in fields(Record)}
        for name in ("phase", "outcome", "workers", "next", "checkpoint", "blocked"):
            found[name]
        record = _RECORD.validate_python({key: each for key, each in found.items() if key in known})
        if record.phase is Phase.OPEN and not record.workers:
            raise ValueError("not a record: open, and without workers")
        if record.blocked is not None:
            BlockKind(record.blocked[0])
        return record
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"not a record: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a record: {error!r}") from None
