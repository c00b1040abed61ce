"""The textual form of a `Decision`: what `horae decide --json` prints and `from_plain` reads back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from policy.model import (
    Certificate,
    Code,
    Decision,
    Reason,
    SolverSummary,
    TenantShare,
    Termination,
    Worst,
)
from policy.text.plain import plain
from policy.text.textform import to_json as print_json


def to_plain(decision: Decision) -> dict[str, Any]:
    """Plain values in the order of the documented form; `shares` and `solver` only where the policy has them."""
    out: dict[str, Any] = {
        "policy": decision.policy,
        "options": plain(decision.options),
        "seed": decision.seed,
    }
    if decision.shares is not None:
        out["shares"] = plain(decision.shares)
    out["tenants"] = {
        name: {"shares": plain(t.shares), "throughput": t.throughput} for name, t in decision.tenants.items()
    }
    out["allocation"] = {job: dict(nodes) for job, nodes in decision.allocation.items()}
    out["leases"] = plain(decision.leases)
    out["cancel"] = list(decision.cancel)
    out["reasons"] = {job: reason_plain(r) for job, r in decision.reasons.items()}
    out["certificate"] = certificate_plain(decision.certificate)
    if decision.solver is not None:
        s = decision.solver
        out["solver"] = {"termination": str(s.termination), "gap": s.gap, "seconds": s.seconds, "solver": s.solver}
    out["state"] = plain(decision.state)
    return out


def reason_plain(reason: Reason) -> dict[str, Any]:
    out = {"code": str(reason.code), "text": reason.text, "numbers": plain(reason.numbers)}
    if reason.change:
        out["change"] = reason.change
    return out


def certificate_plain(c: Certificate) -> dict[str, Any]:
    return {
        "feasible": c.feasible,
        "work_conserving": c.work_conserving,
        "sharing_incentive": {"worst": c.sharing_incentive.worst, "tenant": c.sharing_incentive.who},
        "envy": {"worst": c.envy.worst, "pair": plain(c.envy.who)},
        "pareto": c.pareto,
        "rho": dict(c.rho),
        "throughput": c.throughput,
        "optimal_throughput": c.optimal_throughput,
        "notes": list(c.notes),
    }


def to_json(decision: Decision, *, indent: int | None = None) -> str:
    """The answer as text: equal decisions give equal bytes."""
    return print_json(to_plain(decision), indent=indent)


def from_json(text: str | bytes) -> Decision:
    """The decision that `to_json` printed. Raises KeyError or ValueError on anything else."""
    return from_plain(json.loads(text))


def from_plain(value: Mapping[str, Any]) -> Decision:
    c = value["certificate"]
    envy, solver = c["envy"], value.get("solver")
    return Decision(
        policy=value["policy"],
        options=value["options"],
        seed=value["seed"],
        allocation=value["allocation"],
        reasons={
            job: Reason(Code(r["code"]), r["text"], r["numbers"], r.get("change", ""))
            for job, r in value["reasons"].items()
        },
        certificate=Certificate(
            c["feasible"],
            c["work_conserving"],
            Worst(c["sharing_incentive"]["worst"], c["sharing_incentive"]["tenant"]),
            Worst(envy["worst"], None if envy["pair"] is None else (envy["pair"][0], envy["pair"][1])),
            c["pareto"],
            c["rho"],
            c["throughput"],
            c["optimal_throughput"],
            tuple(c["notes"]),
        ),
        shares=value.get("shares"),
        tenants={n: TenantShare(t["shares"], t["throughput"]) for n, t in value["tenants"].items()},
        leases={job: {node: tuple(times) for node, times in nodes.items()} for job, nodes in value["leases"].items()},
        cancel=tuple(value["cancel"]),
        solver=None
        if solver is None
        else SolverSummary(Termination(solver["termination"]), solver["gap"], solver["seconds"], solver["solver"]),
        state=value["state"],
    )


def schema() -> dict[str, Any]:
    """JSON Schema of the answer."""
    number, text = {"type": "number"}, {"type": "string"}
    amounts = {"type": "object", "additionalProperties": number}
    counts = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
    nullable = {"type": ["number", "null"]}

    def by_name(inner: Mapping[str, Any], what: str = "") -> dict[str, Any]:
        return {"type": "object", "additionalProperties": inner, **({"description": what} if what else {})}

    def record(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        }

    reason = record(
        ("code", "text", "numbers"),
        code={"enum": [str(c) for c in Code]},
        text=text,
        numbers={"type": "object", "description": "the evidence"},
        change={**text, "description": "what would change it"},
    )
    certificate = record(
        (
            "feasible", "work_conserving", "sharing_incentive", "envy", "pareto", "rho", "throughput",
            "optimal_throughput", "notes",
        ),
        feasible={"type": "boolean"},
        work_conserving={"type": "boolean"},
        sharing_incentive=record(("worst", "tenant"), worst=number, tenant={"type": ["string", "null"]}),
        envy=record(
            ("worst", "pair"),
            worst=number,
            pair={"anyOf": [{"type": "null"}, {"type": "array", "items": text, "minItems": 2, "maxItems": 2}]},
        ),
        pareto={"type": ["boolean", "null"], "description": "null: left open, see notes"},
        rho=by_name(nullable, "by app; null for an app that holds nothing"),
        throughput=number,
        optimal_throughput=nullable,
        notes={"type": "array", "items": text},
    )  # fmt: skip
    solver = record(
        ("termination", "gap", "seconds", "solver"),
        termination={"enum": [str(t) for t in Termination]},
        gap=nullable,
        seconds={**number, "description": "the one value that may differ between equal runs"},
        solver=text,
    )
    whole = record(
        (
            "policy", "options", "seed", "tenants", "allocation", "leases", "cancel", "reasons", "certificate", "state",
        ),
        policy=text,
        options={"type": "object"},
        seed={"type": "integer"},
        shares=by_name(amounts, "job -> GPU type -> GPUs; only where the policy has fractional shares"),
        tenants=by_name(record(("shares", "throughput"), shares=amounts, throughput=number)),
        allocation=by_name(counts, "job -> node -> GPUs; empty: the job waits"),
        leases=by_name(by_name({"type": "array", "items": number}), "job -> node -> one expiry time a GPU"),
        cancel={"type": "array", "items": text, "description": "jobs that their app's scheduler ended"},
        reasons=by_name(reason),
        certificate=certificate,
        solver=solver,
        state={"type": "object", "description": "the policy's own, for the next snapshot"},
        fractions=by_name(number, "with --rounds: the part of the rounds in which each job ran"),
    )  # fmt: skip
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Horae decision", **whole}
