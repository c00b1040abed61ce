"""From the API's answers to a `View`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from horae.tui.forms import number
from horae.tui.view import AppView, EventView, JobView, NodeView, TenantView, TrialView, View
from policy.model import GpuSeconds, Seconds

#: What people watching want to read; the rest is for `horae history`.
TOLD = frozenset({"submitted", "intent", "ended", "alert", "mode", "held", "cancel-asked", "capped", "missing"})


def view(
    status: Mapping[str, Any],
    events: Iterable[Mapping[str, Any]] = (),
    *,
    apps: Iterable[Mapping[str, Any]] = (),
    since_s: Seconds | None = None,
    owed: Mapping[str, GpuSeconds] | None = None,
) -> View:
    """`status` with losses; `owed`: fair GPU time by tenant, where somebody has followed it."""
    pools = status["pools"]
    return View(
        cluster=status["cluster"],
        policy=", ".join(dict.fromkeys(p["policy"] for p in pools)),
        mode=", ".join(dict.fromkeys(p["mode"] for p in pools)),
        wall_s=status["now_s"],
        nodes=tuple(NodeView(n["name"], n["gpu_type"], n["gpus"], n["health"], n["foreign"]) for n in status["nodes"]),
        tenants=tuple(_tenant(t, owed) for t in status["tenants"]),
        jobs=tuple(_job(j) for j in status["jobs"]),
        apps=tuple(_app(a) for a in apps if a["scheduler"] is not None and a["running"] + a["waiting"]),
        events=tuple(_event(e) for e in events if _told(e)),
        alerts=tuple(a["text"] for a in status["alerts"]),
        since_s=since_s,
    )


def _told(event: Mapping[str, Any]) -> bool:
    data = event.get("data") or {}
    if event["kind"] == "intent":
        return data.get("verb") != "submit"
    return event["kind"] in TOLD


def _tenant(tenant: Mapping[str, Any], owed: Mapping[str, GpuSeconds] | None) -> TenantView:
    return TenantView(
        tenant["name"],
        tenant["weight"],
        tenant["held"],
        tenant["fair"],
        tenant["gpu_s"],
        None if owed is None else owed.get(tenant["name"], 0.0),
        tenant["waiting"],
        tenant["running"],
        tenant["rho"],
    )


def _job(job: Mapping[str, Any]) -> JobView:
    return JobView(
        id=job["id"],
        name=job["name"],
        tenant=job["tenant"],
        state=job["state"],
        gpus=job["range"],
        allocation=job["allocation"],
        submitted_s=job["submitted_s"],
        ran_s=job["ran_s"],
        step=job["step"],
        total=job["total"],
        losses=tuple((float(step), float(loss)) for step, loss in job.get("losses", ())),
        rho=job["rho"],
        starts=job["starts"],
        reason=job["why"],
        trouble="no checkpoint" if job.get("checkpoint_trouble") else _unused(job),
        ended=job["ended"],
    )


def _unused(job: Mapping[str, Any]) -> str:
    gpus = job.get("unused_gpus")
    return f"{gpus} unused for {job['unused_s'] / 60:.0f} min" if gpus else ""


def _app(app: Mapping[str, Any]) -> AppView:
    phase, best = app["phase"], next((t for t in app["trials"] if t["id"] == app["best"]), None)
    return AppView(
        name=app["app"],
        tenant=app["tenant"],
        scheduler=app["scheduler"],
        phase="" if phase is None else f"{phase['number']}/{phase['of']} to {number(phase['end'], 4)}",
        places=None if phase is None else phase["places"],
        trials=tuple(TrialView(t["id"], t["state"], t["held"], t["rank"]) for t in app["trials"]),
        best="" if best is None else f"{best['name']} {number(best.get('loss'), 3)}",
    )


def _event(event: Mapping[str, Any]) -> EventView:
    return EventView(event["wall_s"], event["text"], event["job"] or "", event["name"], event["tenant"], event["kind"])
