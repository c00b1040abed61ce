"""A backend that keeps jobs in a dictionary: enough of an arbiter to judge the API in front of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horae.arbiter.requests.commands import NoSuchJob
from horae.port import JobId, LogChunk
from horae.spec import JobSpec
from policy.model import Seconds


@dataclass
class Book:
    """`fail`: raised by every method that changes something."""

    specs: dict[JobId, JobSpec] = field(default_factory=dict)
    cancelled: dict[JobId, tuple[str, str]] = field(default_factory=dict)
    held: dict[JobId, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)
    logs: dict[JobId, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  #: by agents of apps
    fail: Exception | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def hides(self) -> tuple[str, ...]:
        return ()

    def about(self) -> dict[str, Any]:
        return {"cluster": "book", "version": "0", "pools": ["main"]}

    def status(self, *, ended: bool, losses: bool, starts: bool = False, brief: bool = False) -> dict[str, Any]:
        jobs = [self.job(j) for j in self.specs]
        if not losses:
            jobs = [{k: v for k, v in j.items() if k != "losses"} for j in jobs]
        node = {"name": "n1", "gpu_type": "v100", "gpus": 4, "held": 1, "foreign": 1, "health": "up", "pool": "main"}
        pool = {"name": "main", "policy": "fifo", "mode": "enforce", "decisions": 3}
        tenants = [{"name": "ann", "weight": 1.0, "held": 1, "fair": 2.0, "gpu_s": 10.0, "running": 1, "waiting": 0}]
        return {
            "cluster": "book",
            "now_s": 1000.0,
            "jobs": jobs,
            "nodes": [node],
            "tenants": tenants,
            "pools": [pool],
            "alerts": [],
        }

    def job(self, job: JobId) -> dict[str, Any]:
        if job not in self.specs:
            raise NoSuchJob(job)
        spec = self.specs[job]
        return {
            "id": job,
            "name": spec.name,
            "owner": spec.owner,
            "tenant": spec.tenant,
            "state": "cancelled" if job in self.cancelled else "queued",
            "command": list(spec.command),
            "losses": [[0, 2.3]],
            "resizes": 0,
        }

    def explain(self, job: JobId, *, reader: str | None = None) -> dict[str, Any]:
        return {**self.job(job), "reason": {"code": "waits-turn", "text": "others are ahead"}}

    def history(
        self, *, job: JobId | None, after: int | None, since_s: Seconds | None, limit: int
    ) -> list[dict[str, Any]]:
        found = [
            {"seq": int(j), "job": j, "owner": s.owner, "text": "submitted", "data": {"command": list(s.command)}}
            for j, s in self.specs.items()
            if job in (None, j) and int(j) > (after or 0)
        ]
        return found[-limit:]

    def log(self, job: JobId, offset: int, *, by: str) -> LogChunk:
        self.job(job)
        data = self.logs.get(job, b"")[offset : offset + 4]
        return LogChunk(data, offset + len(data), eof=offset + len(data) >= len(self.logs.get(job, b"")))

    def apps(self) -> list[dict[str, Any]]:
        trial = {"id": "1", "name": "t", "loss": 0.5, "parameters": {"lr": 0.1}, "why": "", "rank": 1}
        owners = sorted({s.owner for s in self.specs.values()})
        return [{"name": "ann/tune", "owners": owners, "trials": [trial]}]

    def _asked(self, app: str, by: str) -> None:
        if self.fail is not None:
            raise self.fail
        self.asked.append((app, by))

    def register_agent(self, app: str, *, by: str) -> dict[str, Any]:
        self._asked(app, by)
        return {"app": app, "pool": "main", "bid_s": 5.0}

    def leave_agent(self, app: str, *, by: str) -> dict[str, Any]:
        self._asked(app, by)
        return {"app": app, "pool": "main"}

    def offer(self, app: str, *, by: str) -> dict[str, Any]:
        self._asked(app, by)
        offer = {"number": len(self.asked), "left_s": 5.0, "came": False, "gpus": {"n1": 2}, "nodes": {}}
        return {"app": app, "pool": "main", "offer": offer, "jobs": []}

    def agent_instance(self, app: str, *, by: str) -> str:
        self._asked(app, by)
        return "schema: 1\n"

    def bid(self, app: str, offer: int, bids: Sequence[Mapping[str, Any]], *, by: str) -> dict[str, Any]:
        self._asked(app, by)
        return {"app": app, "offer": offer, "rows": len(bids)}

    def win(self, app: str, offer: int, *, by: str) -> dict[str, Any]:
        self._asked(app, by)
        return {"app": app, "offer": offer, "settled": len(self.asked) > offer, "jobs": {}}

    def snapshot(self, pool: str | None) -> str:
        return "schema: 1\n"

    def config(self) -> dict[str, Any]:
        return {"cluster": {"adapter": "book"}}

    def submit(self, specs: Sequence[JobSpec], *, by: str) -> list[JobId]:
        self._maybe_fail()
        with self.lock:
            names = [str(next(self.numbers)) for _ in specs]
            self.specs.update(zip(names, specs, strict=True))
        return names

    def report(self, job: JobId) -> dict[str, Any]:
        return {"id": job, "held_gpu_s": 1.0, "owner": self.specs[job].owner}

    def notes(self, jobs: Sequence[JobId]) -> list[str]:
        return [f"{job} is noted" for job in jobs if self.specs[job].name == "noted"]

    def dry_run(self, specs: Sequence[JobSpec], *, by: str) -> dict[str, Any]:
        jobs = [
            {"id": str(i), "name": s.name, "tenant": s.tenant, "allocation": {"n1": 1}, "code": "granted", "why": "w",
             "change": "c", "start_in_s": None, "start_after": []}
            for i, s in enumerate(specs, 1)
        ]  # fmt: skip
        others = [{"id": "9", "name": "x", "tenant": "t", "gpus": 2, "without": 2, "with": 1}]
        return {"pool": "main", "mode": "enforce", "policy": "fifo", "jobs": jobs, "others": others}

    def cancel(self, job: JobId, *, by: str, why: str) -> str:
        self._maybe_fail()
        self.job(job)
        self.cancelled[job] = (by, why)
        return "is being cancelled"

    def hold(self, job: JobId, *, by: str, why: str) -> str:
        self.job(job)
        self.held[job] = why
        return "is held"

    def prioritise(self, job: JobId, *, priority: int, across: bool, by: str) -> str:
        self._maybe_fail()
        self.job(job)
        self.asked.append((job, f"{by} {priority} {across}"))
        return f"priority is {priority}"

    def unhold(self, job: JobId, *, by: str) -> str:
        self.job(job)
        self.held.pop(job, None)
        return "is not held"

    def mode(self, pool: str, mode: str, *, by: str) -> str:
        self.modes[pool] = mode
        return f"mode is {mode}"

    def release_all(self, *, by: str, why: str) -> str:
        self._maybe_fail()
        self.released.append(by)
        return "everything was handed back"

    def _maybe_fail(self) -> None:
        if self.fail is not None:
            raise self.fail
