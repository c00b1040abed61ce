"""`horae simulate`: a trace under a policy on a cluster that is not there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horae.cli.exits import NO
from horae.cli.options import Json, example
from horae.elastic.files import saved
from horae.tui import screen
from policy.bounds import MOST_S
from policy.errors import BadInput

if TYPE_CHECKING:
    from horae.sim.faults.run import FaultyOutcome
    from horae.sim.plans import Plan
    from horae.sim.traces.model import BadRow

SETTINGS = {
    "epilog": example(
        "horae simulate jobs.csv --cluster v100:8x4 --policy srtf",
        "horae simulate jobs.csv --cluster k80:16x8 --policy afs-l --ideal --jobs-out jobs-afs.csv",
    )
}

TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Jobs as they were handed in: CSV with submitted, duration, gpus.")
]
Spec = Annotated[
    str,
    typer.Option(
        "--cluster", metavar="SPEC", help="TYPE:NODESxGPUS,... (v100:8x4,k80:16x8/rack2), or an instance file."
    ),
]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Option of the policy.")]
Seed = Annotated[int, typer.Option(help="Seed of everything left to chance.")]
Ideal = Annotated[
    bool,
    typer.Option("--ideal", help="As in a textbook: GPUs are one pool a type, changes cost nothing and come at once."),
]
Restart = Annotated[
    float | None,
    typer.Option(min=0.0, max=MOST_S, metavar="S", help="Seconds of every restart; default: drawn from measured ones."),
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N jobs.")]
FormOf = Annotated[str, typer.Option("--format", help="Form of the trace: ours, philly, helios, alibaba, ...")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out malformed rows and too large jobs, and count them.")
]
Tables = Annotated[
    str | None, typer.Option("--throughputs", metavar="FILE", help="Speeds by model: a JSON file, or a shipped table.")
]
Faults = Annotated[
    str | None,
    typer.Option(
        "--faults", metavar="FILE|all", help="Faults as they come: a JSON list, or each kind (engine arbiter)."
    ),
]


def _breaks(word: str | None) -> str | None:
    """`list` needs nothing else."""
    if word != "list":
        return word
    from horae.sim.faults.arbiter import BREAKS

    columns = (screen.Column("RULE"), screen.Column("VIOLATION"), screen.Column("WHAT THE ARBITER DOES"))
    screen.table(columns, [(rule.value, found, what) for rule, (what, found) in BREAKS.items()])
    raise typer.Exit


Break = Annotated[
    str | None,
    typer.Option(
        "--break",
        metavar="RULE|list",
        help="The arbiter breaks this rule, to see it found; list names them.",
        callback=_breaks,
        is_eager=True,
    ),
]
Noise = Annotated[
    float, typer.Option(metavar="X", help="Profiles of speed, length, slowdown are off by up to this part (0.2).")
]
LieOf = Annotated[
    list[str] | None,
    typer.Option("--lie", metavar="TENANT:WHAT=F", help="It overstates its speedup, length or slowdown by F."),
]
SlowOf = Annotated[
    str | None,
    typer.Option(metavar="EVERY,PART,FOR", help="Each node at PART of its speed now and then (86400,0.5,3600)."),
]
Engine = Annotated[str, typer.Option(help="fast, or arbiter: the code that runs in production.")]


def simulate(
    trace: TraceFile,
    cluster: Spec,
    policy: Annotated[str, typer.Option(help="Which decides; `horae policies` lists them.")],
    options: Sets = None,
    seed: Seed = 0,
    ideal: Ideal = False,
    restart: Restart = None,
    jobs_out: Annotated[
        Path | None, typer.Option("--jobs-out", metavar="FILE.csv", help="One row a job: started, finished, rho, ...")
    ] = None,
    limit: Limit = None,
    form: FormOf = "ours",
    skip_bad: SkipBad = False,
    throughputs: Tables = None,
    engine: Engine = "fast",
    faults: Faults = None,
    broken: Break = None,
    noise: Noise = 0.0,
    lie: LieOf = None,
    stragglers: SlowOf = None,
    as_json: Json = False,
) -> None:
    """Play a trace of jobs under a policy, and say how long they waited and took, how fair and how full it was.

    Time jumps from one event to the next: a month of a cluster takes seconds. Without --ideal jobs are placed on nodes,
    restarts cost time and decisions come in rounds of 5 s. The same trace, seed and options give the same --jobs-out,
    to the byte, from either engine. Exit code 3: a file is malformed, and where.

    With --faults the arbiter's own code lives through bad days, and after each event it is checked that no job is lost,
    doubled, started from an old state or never, no GPU held twice, no limit passed, no intent left open. Exit code 1:
    something did not hold; the seed and the shortest schedule of faults that shows it are printed.
    """
    from horae.cli.decide import options_of
    from horae.sim import results
    from horae.sim.plans import Plan
    from horae.sim.traces.writing import writable

    plan = Plan(
        trace=trace,
        cluster=cluster,
        policy=policy,
        options=options_of(options or []),
        seed=seed,
        ideal=ideal,
        restart_s=restart,
        limit=limit,
        form=form,
        skip_bad=skip_bad,
        throughputs=throughputs,
        engine=engine,
        noise=noise,
        lies=tuple(lie or ()),
        stragglers=stragglers,
    )
    writable(jobs_out, "--jobs-out", plan.files())
    started, misfortune = time.perf_counter(), None
    if faults is None and broken is None:
        outcome, bad = plan.run()
    else:
        misfortune, bad = _on_bad_days(plan, faults or "all", broken)
        outcome = misfortune.simulated
    if jobs_out is not None:
        with saved(jobs_out) as beside, open(beside, "w", encoding="utf-8", newline="") as file:
            results.write_jobs(outcome, file)
    for row in (*bad, *outcome.unplayable):
        screen.note(f"{trace}:{row.line}: {row.column}: {row.what}: {row.value}")
    result = results.summary(outcome, time.perf_counter() - started)
    if misfortune is not None:
        result |= {"violations": misfortune.violations, "faults": dict(misfortune.faults)}
    if as_json:
        screen.emit_json(result)
    else:
        _show(result)
    if misfortune is not None and misfortune.broken is not None:
        screen.note(f"seed {seed}: {misfortune.broken}")
        screen.note(json.dumps([fault.plain() for fault in misfortune.schedule]))
        raise typer.Exit(NO)


def _on_bad_days(plan: Plan, faults: str, broken: str | None) -> tuple[FaultyOutcome, tuple[BadRow, ...]]:
    """A violation is shown by the shortest schedule that has it."""
    from horae.sim.conditions.told import TRUE
    from horae.sim.faults.run import FaultyRun, rule_of

    if plan.engine != "arbiter":
        raise BadInput("needs the arbiter's own code", field="--faults", value=faults, remedy="--engine arbiter")
    rule = None if broken is None else rule_of(broken)
    trace, settings, table = plan.read()
    if settings.conditions != TRUE or any(job.phases for job in trace.jobs):
        what = "bad days are played without --noise, --lie, --stragglers, and jobs with phases"
        raise BadInput(what, field="--faults", value=faults, remedy="leave one of them out")
    run = FaultyRun(trace, settings, table, rule, plan.skip_bad)
    outcome = run.play(run.schedule(faults))
    return (outcome if outcome.broken is None else run.shrunk(outcome)), trace.remarks


def _show(result: dict[str, Any]) -> None:
    jct, queueing, rho = result["jct"], result["queueing"], result["rho"]
    hours = result["gpu_seconds"] / 3600
    pairs = [
        ("policy", result["policy"]),
        ("jobs", f"{result['completed']} of {result['jobs']} completed in {result['makespan']:.0f} s"),
        (
            "completion",
            f"mean {jct['mean']:.1f} s, median {jct['median']:.1f}, p95 {jct['p95']:.1f}, p99 {jct['p99']:.1f}",
        ),
        ("waiting", f"mean {queueing['mean']:.1f} s, p95 {queueing['p95']:.1f} until they first ran"),
        ("fairness", f"rho max {rho['max']:.3g}, mean {rho['mean']:.3g}, Jain's index {rho['jain']:.3f}"),
        ("GPUs", f"{hours:.1f} GPU-hours, {result['utilisation']:.1%} of the cluster"),
        (
            "restarts",
            f"{result['resizes']} resizes, {result['migrations']} migrations, {result['restart_seconds']:.0f} s in all",
        ),
        ("simulated", f"{result['rounds']} decisions in {result['seconds']:.1f} s"),
    ]
    if "faults" in result:
        happened = ", ".join(f"{count} {kind}" for kind, count in result["faults"].items())
        pairs += [("faults", happened), ("violations", str(len(result["violations"])))]
    pairs += (
        [("left out", ", ".join(f"{n} {why}" for why, n in skipped.items()))]
        if (skipped := result.get("skipped"))
        else []
    )
    screen.print_pairs(pairs)
