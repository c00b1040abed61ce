"""A decision on the screen: jobs as squeue would list them, then tenants, then the certificate in words."""

from __future__ import annotations

from typing import Any

from horae.tui import forms, screen
from policy.model import Snapshot

STYLES = {
    "granted": "green",
    "grew": "green",
    "kept": "",
    "moved": "cyan",
    "shrank": "yellow",
    "preempted": "red",
    "infeasible": "bold red",
    "unknown-speed": "bold red",
    "no-gain": "dim",
    "finished": "dim",
}


def show(plain: dict[str, Any], snapshot: Snapshot) -> None:
    """The whole decision."""
    options = " ".join(f"{k}={v}" for k, v in plain["options"].items())
    print(f"{plain['policy']}{' ' + options if options else ''}, seed {plain['seed']}\n")
    _jobs(plain, snapshot)
    print()
    _tenants(plain, snapshot)
    print()
    _certificate(plain)


def show_job(name: str, plain: dict[str, Any], as_json: bool) -> None:
    """One job: what it gets and why."""
    now, reason = plain["allocation"][name], plain["reasons"][name]
    if as_json:
        screen.emit_json({"job": name, "policy": plain["policy"], "allocation": now, "reason": reason})
        return
    total = sum(now.values())
    held = f"{total} GPU{'' if total == 1 else 's'} on {forms.allocation(now)}" if now else "no GPUs"
    pairs = [("job", name), ("gets", held), ("why", f"{reason['code']}: {reason['text']}")]
    numbers = ", ".join(f"{k} {_number(v)}" for k, v in reason["numbers"].items())
    screen.print_pairs([*pairs, ("numbers", numbers), ("change", reason.get("change", ""))])


def _jobs(plain: dict[str, Any], snapshot: Snapshot) -> None:
    shares, fractions = plain.get("shares"), plain.get("fractions")
    columns = [screen.Column("JOB"), screen.Column("TENANT"), screen.Column("GPUS", right=True)]
    columns.append(screen.Column("HELD", right=True))
    if shares is not None:
        columns.append(screen.Column("SHARE"))
    if fractions is not None:
        columns.append(screen.Column("RAN", right=True))
    columns += [screen.Column("NODES"), screen.Column("WHY"), screen.Column("REASON")]
    rows: list[list[str | screen.Cell]] = []
    for job in snapshot.jobs:
        now, reason = plain["allocation"][job.name], plain["reasons"][job.name]
        row: list[str | screen.Cell] = [job.name, job.tenant, str(sum(now.values())), str(job.held)]
        if shares is not None:
            row.append(_share(shares.get(job.name, {})) or "-")
        if fractions is not None:
            row.append(f"{fractions[job.name]:.1%}")
        row += [
            forms.allocation(now) if now else "-",
            screen.Cell(reason["code"], STYLES.get(reason["code"], "yellow")),
        ]
        rows.append([*row, reason["text"]])
    screen.table(columns, rows)


def _tenants(plain: dict[str, Any], snapshot: Snapshot) -> None:
    weights = {t.name: t.weight for t in snapshot.tenants}
    columns = [screen.Column("TENANT"), screen.Column("WEIGHT", right=True), screen.Column("THROUGHPUT", right=True)]
    screen.table(
        [*columns, screen.Column("GPUS")],
        [
            (name, f"{weights[name]:g}", f"{t['throughput']:.4g}", _share(t["shares"]) or "-")
            for name, t in plain["tenants"].items()
        ],
    )


def _share(share: dict[str, float]) -> str:
    return " ".join(f"{t}:{x:.4g}" for t, x in share.items() if x)


def _certificate(plain: dict[str, Any]) -> None:
    c = plain["certificate"]
    yes = {True: "yes", False: "no", None: "left open"}
    best, envy = c["optimal_throughput"], c["envy"]
    of = "" if best is None else f" of {best:.4g} at most"
    if best:
        of += f" ({c['throughput'] / best:.0%})"
    incentive = c["sharing_incentive"]
    who = f", worst for {incentive['tenant']}" if incentive["tenant"] is not None else ""
    rho = [r for r in c["rho"].values() if r is not None]
    pairs = [
        ("feasible", yes[c["feasible"]]),
        ("work-conserving", yes[c["work_conserving"]]),
        ("fair share", f"{incentive['worst']:.4g}{who}"),
        ("envy", "none" if envy["pair"] is None else f"{envy['worst']:.4g}, {envy['pair'][0]} of {envy['pair'][1]}"),
        ("Pareto", yes[c["pareto"]]),
        ("rho", f"{max(rho):.4g} at worst, {sum(rho) / len(rho):.4g} on average" if rho else ""),
        ("throughput", f"{c['throughput']:.4g}{of}"),
        *(("note", note) for note in c["notes"]),
    ]
    if "solver" in plain:
        s = plain["solver"]
        gap = "" if s["gap"] is None else f", gap {s['gap']:.2%}"
        pairs.append(("solver", f"{s['solver']} {s['termination']}{gap}, {s['seconds']:.3g} s"))
    screen.print_pairs(pairs)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
