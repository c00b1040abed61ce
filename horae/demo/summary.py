"""The account of a demo that is over: plain data, judged by the jobs' own logs. `docs/howto/demo.md` documents it.

Two sources that know nothing of each other are compared: what the arbiter says it did, and what the trainers wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from horae.demo.job_history import Story
from horae.demo.record import ShareRecord
from policy.model import Seconds

SCHEMA = 1
#: Points of a curve that are kept; more than a screen or a plot can show would only make the file long.
MOST_POINTS = 400


def summary(
    *,
    policy: str,
    framework: str,
    status: Mapping[str, Any],
    apps: Sequence[Mapping[str, Any]] = (),
    record: ShareRecord,
    stories: Mapping[str, Story],
    events: Sequence[Mapping[str, Any]],
    interrupted: bool,
) -> dict[str, Any]:
    """`status`: the last one, with ended jobs. `apps`: as the API shows them. `stories`: by job.

    `events`: the whole history, asked for after all else.
    """
    jobs = [_job(job, stories.get(job["id"], Story())) for job in status["jobs"]]
    pauses = restarts(events)
    ordered = _ordered(events)
    lost: list[str] = []
    for job in jobs:
        starts = max(job["starts"], ordered.get(job["id"], 0))
        lost += _lost(job, starts)
    held = sum(record.held_gpu_s.values())
    jcts = [j["jct_s"] for j in jobs if j["state"] == "completed"]
    return {
        "schema": SCHEMA,
        "policy": policy,
        "framework": framework,
        "cluster": status["cluster"],
        "seconds": round(record.seconds, 3),
        "interrupted": interrupted,
        "gpus": sum(n["gpus"] for n in status["nodes"]),
        "utilisation": _ratio(held, record.gpu_s),
        "utilisation_of_wanted": _ratio(held, record.wanted_gpu_s),
        "tenants": _tenants(status, record, jobs),
        "apps": [_app(app) for app in apps if app["scheduler"] is not None],
        "jobs": jobs,
        "jct_s": {"mean": _mean(jcts), "max": max(jcts, default=None)},
        "resizes": {
            "count": sum(j["resizes"] for j in jobs),
            "pause_s": {"mean": _mean(pauses), "max": max(pauses, default=None), "total": round(sum(pauses), 3)},
            "repeated_steps": sum(j["repeated_steps"] for j in jobs),
            "worst_loss_jump": max((x for j in jobs for x in j["loss_jumps"]), default=None),
        },
        "lost": lost,
        "ok": not lost,
    }


def _job(job: Mapping[str, Any], story: Story) -> dict[str, Any]:
    ended_s = job["ended_s"]
    return {
        "id": job["id"],
        "name": job["name"],
        "tenant": job["tenant"],
        "app": job["app"],
        "state": job["state"],
        "exit_code": job["exit_code"],
        "range": job["range"],
        "steps": story.done,
        "total": story.total,
        "submitted_s": job["submitted_s"],
        "jct_s": None if ended_s is None else round(ended_s - job["submitted_s"], 3),
        "ran_s": round(job["ran_s"], 3),
        "gpu_s": round(sum(job["attained"].values()), 3),
        "gpu_s_by_type": {k: round(v, 3) for k, v in job["attained"].items()},
        "starts": job["starts"],
        "resizes": max(job["starts"] - 1, 0),
        "sizes": story.worlds,
        "repeated_steps": story.repeated,
        "skipped_steps": story.skipped,
        "restarts_before_checkpoint": story.forgotten,
        "loss_jumps": [round(x, 2) for x in story.jumps()],
        "last_words": story.last_words,
        "losses": [[p.step, p.loss, p.world] for p in _thin(story.points)],
    }


def _app(app: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("id", "name", "state", "rank", "loss", "step", "parameters", "why")
    return {
        **{key: app[key] for key in ("name", "tenant", "scheduler", "phase", "completed", "ended_early", "best")},
        "trials": [{key: trial[key] for key in kept} for trial in app["trials"]],
    }


def _ordered(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How often each job was to be started. Written down before it is done: a trainer's first line may come before the
    arbiter's next look."""
    found: dict[str, int] = {}
    for event in events:
        if event["kind"] != "intent":
            continue
        job, data = event["job"], event.get("data") or {}
        epoch = data.get("epoch")
        if epoch is not None:
            found[job] = max(found.get(job, 0), epoch)
    return found


def _lost(job: Mapping[str, Any], ordered: int) -> list[str]:
    """What went wrong with a job, in sentences. Nothing: its work is all there, once."""
    name = f"job {job['id']} ({job['name']})"
    out = []
    if job["state"] in ("failed", "lost"):
        said = f"; it said: {' | '.join(job['last_words'])}" if job["last_words"] else ""
        out.append(f"{name} {job['state']} with exit code {job['exit_code']}{said}")
    if job["restarts_before_checkpoint"]:
        out.append(f"{name} took up before its last complete checkpoint")
    if job["skipped_steps"]:
        out.append(f"{name} left out {job['skipped_steps']} steps")
    if job["state"] == "completed" and job["steps"] != job["total"]:
        out.append(f"{name} is called completed after {job['steps']} of {job['total']} steps")
    if ordered < len(job["sizes"]):
        out.append(f"{name} was started {len(job['sizes'])} times, of which the arbiter knows {ordered}")
    return out


def _tenants(status: Mapping[str, Any], record: ShareRecord, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    held, fair = sum(record.held_gpu_s.values()), sum(record.fair_gpu_s.values())
    out = []
    for tenant in status["tenants"]:
        name = tenant["name"]
        mine = [j for j in jobs if j["tenant"] == name]
        out.append({
            "name": name,
            "weight": tenant["weight"],
            "gpu_s": round(record.held_gpu_s.get(name, 0.0), 3),
            "fair_gpu_s": round(record.fair_gpu_s.get(name, 0.0), 3),
            "part": _ratio(record.held_gpu_s.get(name, 0.0), held),
            "fair_part": _ratio(record.fair_gpu_s.get(name, 0.0), fair),
            "jobs": len(mine),
            "completed": sum(j["state"] == "completed" for j in mine),
            "jct_s": _mean([j["jct_s"] for j in mine if j["state"] == "completed"]),
        })  # fmt: skip
    return out


def restarts(events: Sequence[Mapping[str, Any]]) -> list[Seconds]:
    """How long each stopped job did not train: from being asked to stop until its next start was seen running."""
    asked: dict[str, tuple[Seconds, int]] = {}
    out = []
    for event in events:
        job, data = event["job"], event.get("data") or {}
        if event["kind"] == "intent" and data.get("verb") == "checkpoint_and_stop" and job not in asked:
            asked[job] = (event["wall_s"], 0)
        elif event["kind"] == "seen" and data.get("state") == "running" and job in asked:
            begun_s, _ = asked[job]
            if data.get("since_s", begun_s) > begun_s:
                del asked[job]
                out.append(max(data["since_s"] - begun_s, 0.0))
    return out


def _thin(points: Sequence[Any]) -> Sequence[Any]:
    step = max(len(points) // MOST_POINTS, 1)
    return [*points[:-1:step], *points[-1:]]


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 else None
