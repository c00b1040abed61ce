"""A `Snapshot` as the text of an instance file: what `instance.py` reads back as the same value."""

from __future__ import annotations

from typing import Any

from policy.model import (
    SCHEMA,
    Away,
    GpuRange,
    Job,
    Limits,
    LossForecast,
    Node,
    Shape,
    Slowdown,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)
from policy.text.plain import plain
from policy.text.textform import to_json, to_yaml


def to_text(snapshot: Snapshot, form: str = "yaml") -> str:
    """The instance file of `snapshot`; `form`: "yaml", or "json" (one line, faster for large ones)."""
    value = to_plain(snapshot)
    return to_json(value) if form == "json" else to_yaml(value)


def to_plain(snapshot: Snapshot) -> dict[str, Any]:
    """The instance file of `snapshot` as plain values; what equals its default is left out."""
    cluster = snapshot.cluster
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "now": snapshot.now_s,
        "cluster": {
            "nodes": [_node_plain(n) for n in cluster.nodes],
            **_unless("limits", _limits_plain(cluster.limits), {}),
            "gpu_types": list(cluster.gpu_types),
        },
        "tenants": [_tenant_plain(t) for t in snapshot.tenants],
        "jobs": [_job_plain(j) for j in snapshot.jobs],
    }
    if snapshot.quotas:
        out["quotas"] = [
            {
                "name": q.name,
                **_unless("gpus", q.gpus, None),
                **_unless("jobs", q.jobs, None),
                **_unless("nodes", q.nodes, None),
                **_unless("gpus_per_node", q.gpus_per_node, None),
                **_unless("least", q.least, None),
                "match": {"jobs": list(q.whom)},
            }
            for q in snapshot.quotas
        ]
    if snapshot.apps:
        out["apps"] = [
            {
                "name": a.name,
                "scheduler": a.scheduler,
                **_unless("budget", a.budget, None),
                **_unless("demand_max", a.demand_max, None),
                **_unless("phases", [{"jobs": p.jobs, "iterations": p.iterations} for p in a.phases], []),
            }
            for a in snapshot.apps
        ]
    if snapshot.active_apps:
        out["history"] = {"active_apps": [list(p) for p in snapshot.active_apps]}
    if snapshot.state:
        out["state"] = plain(snapshot.state)
    if snapshot.policy is not None:
        out["policy"] = {"name": snapshot.policy.name, **_unless("options", plain(snapshot.policy.options), {})}
    return out


def _unless(key: str, value: Any, default: Any) -> dict[str, Any]:
    return {} if value == default else {key: value}


def _tenant_plain(tenant: Tenant) -> dict[str, Any]:
    beyond = None if tenant.beyond is None else str(tenant.beyond)
    stated = {**_unless("cap", tenant.cap, None), **_unless("beyond", beyond, None)}
    return {"name": tenant.name, "weight": tenant.weight, **stated}


def _limits_plain(limits: Limits) -> dict[str, Any]:
    return {
        **_unless("equal_gpus_per_node", limits.equal_gpus_per_node, False),
        **_unless("one_type_per_job", limits.one_type_per_job, False),
        **_unless("pinning", str(limits.pinning), "exact"),
    }


def _node_plain(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "gpu_type": node.gpu_type,
        "gpus": node.gpus,
        **_unless("rack", node.rack, None),
        **_unless("health", str(node.health), "up"),
        **_unless("foreign", node.foreign, 0),
        **_unless("cpus", node.cpus, None),
        **_unless("memory", node.memory, None),
        **_unless("features", list(node.features), []),
        **_unless("wake_s", node.wake_s, 0.0),
        **_unless("away", [_away_plain(away) for away in node.away], []),
    }


def _away_plain(away: Away) -> dict[str, Any]:
    return {
        "name": away.name,
        "from": away.from_s,
        "to": away.to_s,
        **_unless("leave", away.leave_s, away.from_s),
        **_unless("reason", away.reason, ""),
    }


def _gpus_plain(gpus: GpuRange) -> dict[str, Any] | int:
    if gpus.allowed is not None:
        return {"requested": gpus.requested, "allowed": list(gpus.allowed)}
    if gpus.rigid and gpus.requested == gpus.min:
        return gpus.min
    return {"requested": gpus.requested, "min": gpus.min, "max": gpus.max}


def _job_plain(job: Job) -> dict[str, Any]:
    out: dict[str, Any] = {"name": job.name, "tenant": job.tenant, "app": job.app, "submitted": job.submitted_s}
    out["gpus"] = _gpus_plain(job.gpus)
    if job.work != Work():
        out["work"] = {"total": job.work.total, "done": job.work.done}
    return {
        **out,
        **_speeds_plain(job),
        **_holding_plain(job),
        **_needs_plain(job),
        **_unless("known", job.known, True),
        **_unless("loss", [list(p) for p in job.loss], []),
        **_unless("loss_forecast", _forecast_plain(job.loss_forecast), None),
        **_unless("restart_cost", job.restart_cost_s, None),
        **_unless("shape", _shape_plain(job.shape), None),
        **_unless("gpu_types", _types_plain(job.gpu_types), None),
        **_unless("stays", job.stays, False),
        **_unless("time_left", job.time_left_s, None),
        **_unless("priority", job.priority, 0),
        **_unless("precedence", job.precedence, 0),
    }


def _speeds_plain(job: Job) -> dict[str, Any]:
    slowdown = {"node": job.slowdown.node, "rack": job.slowdown.rack, "cluster": job.slowdown.cluster}
    return {
        **_unless("throughput", {t: dict(curve) for t, curve in job.throughput.items()}, {}),
        **_unless("provenance", {t: str(p) for t, p in job.provenance.items()}, {}),
        **_unless("model", job.model, None),
        **({} if job.slowdown == Slowdown() else {"slowdown": slowdown}),
    }


def _holding_plain(job: Job) -> dict[str, Any]:
    return {
        **_unless("attained", dict(job.attained), {}),
        **_unless("allocation", dict(job.allocation), {}),
        **_unless("lease_until", {node: list(times) for node, times in job.lease_until.items()}, {}),
    }


def _needs_plain(job: Job) -> dict[str, Any]:
    return {
        **({} if job.cpus_per_gpu is None else {"cpus": {"per_gpu": job.cpus_per_gpu}}),
        **({} if job.memory_per_gpu is None else {"memory": {"per_gpu": job.memory_per_gpu}}),
    }


def _forecast_plain(forecast: LossForecast | None) -> dict[str, Any] | None:
    if forecast is None:
        return None
    interval = _unless("interval", plain(forecast.interval), None)
    return {"law": forecast.law, "parameters": dict(forecast.parameters), **interval}


def _types_plain(types: TypeChoice | None) -> dict[str, Any] | None:
    if types is None:
        return None
    return {
        **_unless("require", list(types.require), []),
        **_unless("prefer", list(types.prefer), []),
        **_unless("forbid", list(types.forbid), []),
    }


def _shape_plain(shape: Shape | None) -> dict[str, Any] | None:
    if shape is None:
        return None
    return {
        **_unless("nodes", shape.nodes, None),
        **_unless("gpus_per_node", shape.gpus_per_node, None),
        **_unless("cpus_per_node", shape.cpus_per_node, None),
        **_unless("memory_per_node", shape.memory_per_node, None),
        **_unless("features", list(shape.features), []),
        **_unless("exclusive", shape.exclusive, False),
        **_unless("licences", dict(shape.licences), {}),
    }
