"""`horae what-if`: a site's own history, and what other policies would have made of the same jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from horae.cli.options import Json, example
from horae.tui import screen

SETTINGS = {
    "epilog": example(
        "horae what-if --from-sacct year.txt.gz",
        "horae what-if --from-sacct year.txt.gz --policies afs-l,themis --elastic 0.2 --html report.html",
    )
}


def what_if(
    from_sacct: Annotated[Path, typer.Option("--from-sacct", metavar="FILE", help="What sacct printed; gzip too.")],
    policies: Annotated[str, typer.Option(metavar="A,B", help="Policies to try; none: the history alone.")] = "",
    cluster: Annotated[
        str | None, typer.Option(metavar="SPEC", help="v100:8x4, or a file; default: most held at once in the dump.")
    ] = None,
    elastic: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="FRACTION", help="Part of the jobs that could be resized.")
    ] = 0.0,
    scaling: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="F", help="An elastic job on n times the GPUs: n^F as fast.")
    ] = 0.9,
    seed: Annotated[int, typer.Option(help="Seed of which jobs are elastic, and of what policies draw.")] = 0,
    html: Annotated[Path | None, typer.Option(metavar="OUT.html", help="Write a report with plots: one file.")] = None,
    cpus: Annotated[bool, typer.Option("--cpus", help="Count jobs without GPUs in the history too.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave malformed rows out, list and count them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what happened on a site, and what would have happened to its own jobs under other policies.

    Dump the time in question, on any host where sacct works (Slurm 22.05 to 26.05), and give the file:

    `SLURM_BITSTR_LEN=0 sacct -a -D -P -S 2025-01-01 -E now
    -o JobIDRaw,JobID,User,Account,State,Submit,Eligible,Start,End,ElapsedRaw,AllocTRES,ReqTRES,NodeList
    > year.txt`

    The history is arithmetic on the dump and exact. What sacct cannot tell (which jobs could be resized, how they
    scale, what a restart costs) is assumed, and a policy's mean wait is a band over the assumptions. Nothing is changed
    anywhere. Exit code 3: the dump is malformed, and where.
    """
    from horae.sim.whatif.answer import WhatIf
    from horae.sim.whatif.answer import from_sacct as asked
    from horae.sim.whatif.replay import Assumption
    from policy import catalogue

    names = tuple(filter(None, (name.strip() for name in policies.split(","))))
    for name in names:
        catalogue.find(name)
    there = None
    if cluster is not None:
        from horae.sim.engine.cluster import cluster_of

        there = cluster_of(cluster)
    question = WhatIf(names, there, Assumption(elastic, scaling), seed, cpus, skip_bad, levers=html is not None)
    answer, bad = asked(from_sacct, question, told=screen.note)
    for row in bad:
        screen.note(f"{from_sacct}:{row.line}: {row.column}: {row.what}: {row.value}")
    if html is not None:
        from horae.sim.whatif.page import page

        html.write_text(page(answer, from_sacct.name), encoding="utf-8")
    if as_json:
        screen.emit_json(answer)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    past, cluster = answer["history"], answer["cluster"]
    wait = past["wait"]
    skipped = ", ".join(f"{n} {why}" for why, n in past["skipped"].items() if n)
    screen.print_pairs([
        ("jobs", f"{past['jobs']:,}, {past['gpu_jobs']:,} of them ran on GPUs" + (f" ({skipped})" if skipped else "")),
        ("cluster", f"{cluster['gpus']} GPUs ({'most held at once' if cluster['from'] == 'dump' else 'as given'})"),
        ("GPU-hours", f"{past['gpu_hours']:,.1f}, {past['utilisation']:.1%} of the cluster"),
        ("waiting", f"mean {wait['mean']:,.0f} s, median {wait['median']:,.0f} s, p95 {wait['p95']:,.0f} s"),
    ])  # fmt: skip
    if "policies" not in answer:
        return
    rows = [(f"replay ({answer['replay']['policy']})", answer["replay"], None)]
    rows += [(name, of, of["band"]["wait_mean"]) for name, of in answer["policies"].items()]
    print()
    screen.table(
        [screen.Column(name) for name in ("POLICY", "MEAN WAIT s", "BAND", "P95 s", "MEAN JCT s", "RESIZES")],
        [
            [
                name,
                f"{of['wait']['mean']:,.0f}",
                "" if band is None else f"{band[0]:,.0f} to {band[1]:,.0f}",
                f"{of['wait']['p95']:,.0f}",
                f"{of['jct']['mean']:,.0f}",
                f"{of['resizes']:,}",
            ]
            for name, of, band in rows
        ],
    )
    print(f"\n{answer['replay']['note']}.\nAssumed:")
    for words in answer["assumptions"]:
        print(f"  {words}")
