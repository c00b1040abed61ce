"""What is left where the cluster hides one user's jobs from the others (`Capabilities.hides`; Slurm's PrivateData).

Elsewhere `public.py` says how much of others' jobs everybody sees. Here there is no row of them, and nothing that is
left names or counts them: not a tenant's row, an app's, a policy's reasons, who is ahead, an event of the cluster.
What every user may know of the cluster itself, its nodes and how many of their GPUs are held, stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from horae import job_number
from horae.api.privacy import public
from horae.journal import Kind
from horae.views.rows import UNDECIDED

Data = Mapping[str, Any]

#: Hidden alone, others' jobs are shown, and what they used is not.
USAGE = frozenset({"usage"})
#: Of a tenant: what is the site's, whoever has jobs.
TENANT = frozenset("name weight fair cap".split())
#: Events of no job that tell of none.
NEUTRAL = frozenset(
    kind.value
    for kind in (
        Kind.OPENED,
        Kind.CLAIMED,
        Kind.STOOD_DOWN,
        Kind.RECOVERED,
        Kind.ALERT,
        Kind.CLEARED,
        Kind.CLOCK_STEPPED,
        Kind.CHECKPOINT,
        Kind.MODE,
        Kind.MAINTENANCE,
    )
)
#: Causes whose words and numbers are about the job beside the others.
COMPARING = frozenset({"policy", "plan", "guard", "app", "limit", "probe", "size", "shrank", "share", "start"})
NUMBERS = frozenset("code guard wanted for_s cap asked_s left_s gpu_type gpus at_most_s".split())
STATED = frozenset("policy took_s fallback".split())


def jobs(hides: Collection[str]) -> bool:
    """Whether others' jobs are hidden. A row names its owner and its tenant: so it goes where those are hidden too."""
    return bool(set(hides) - USAGE)


def own_job(data: Data) -> dict[str, Any]:
    """One's own job, without what its reasons tell of the others."""
    shown = {**data}
    if "why" in data:
        shown["why"] = public.job(data)["why"]
    if "rho" in data:
        shown["rho"] = None
    if "start_s" in data:
        shown["start_s"] = None
    if "causes" in data:
        shown["ahead"] = shown["ahead_jobs"] = []
        shown["causes"] = [_cause(cause) for cause in data["causes"]]
        first = shown["causes"][0]["text"] if shown["causes"] else UNDECIDED
        held = sum(data.get("allocation", {}).values())
        holds = f"{held} GPU{'' if held == 1 else 's'}" if held else "no GPUs"
        shown["headline"] = f"job {job_number(data['id'])} is {data['state']} and holds {holds}: {first}"
    return shown


def trial(data: Data) -> dict[str, Any]:
    """A dry run, without what it tells of the others."""
    jobs = [
        {**job, "why": public.REASONS.get(str(job["code"]), ""), "change": "", "start_in_s": None, "start_after": []}
        for job in data["jobs"]
    ]
    return {**data, "jobs": jobs, "others": []}


def _cause(cause: Data) -> dict[str, Any]:
    if cause["what"] not in COMPARING:
        return {**cause}
    told = public.causes([cause])[0]
    return {**told, "numbers": public.only(told["numbers"], NUMBERS)}


def status(data: Data, own: Iterable[Data]) -> dict[str, Any]:
    """All but the jobs; tenants are those of one's `own` jobs, with what these make of them."""
    return {
        **data,
        "tenants": tenants(data["tenants"], list(own)),
        "pools": [{**pool, "decided": _decided(pool.get("decided", {})), "advised": []} for pool in data["pools"]],
    }


def _decided(data: Data) -> dict[str, Any]:
    return public.only(data, STATED)


def tenants(data: Iterable[Data], own: Iterable[Data]) -> list[dict[str, Any]]:
    mine: dict[str, list[Data]] = {}
    for job in own:
        mine.setdefault(str(job["tenant"]), []).append(job)
    return [_tenant(row, mine[row["name"]]) for row in data if row["name"] in mine]


def _tenant(row: Data, own: Iterable[Data]) -> dict[str, Any]:
    found = {**public.only(row, TENANT), "held": 0, "running": 0, "waiting": 0, "gpu_s": 0.0, "rho": None}
    for job in own:
        held = sum(job.get("allocation", {}).values())
        found["held"] += held
        found["gpu_s"] += sum(job.get("attained", {}).values())
        if not job.get("ended"):
            found["running" if held else "waiting"] += 1
    return found


def event(data: Data) -> dict[str, Any] | None:
    """An event of no job, or of one's own; None: it tells of the others."""
    kind = data.get("kind")
    if not data.get("job"):
        return {**data} if kind in NEUTRAL else None
    if kind == Kind.GUARDED.value:  # a guard's words compare
        return {**data, **public.event(data), "data": {}}
    return {**data}
