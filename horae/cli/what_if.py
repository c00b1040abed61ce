"""`horae what-if`: a site's own history, and what other policies would have made of the same jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from horae.cli.options import Json, example
from horae.elastic.files import saved
from horae.tui import forms, screen

SETTINGS = {
    "epilog": example(
        "horae what-if --from-sacct year.txt.gz",
        "horae what-if --from-sacct year.txt.gz --policies afs-l,themis --elastic 0.2 --html report.html",
        "horae what-if --from-journal --since 7d --policies afs-l,themis",
    )
}


def what_if(
    where: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STATE]",
            help="Journal: state folder or configuration; default: $HORAE_CONFIG, else /var/lib/horae.",
            show_default=False,
        ),
    ] = None,
    from_sacct: Annotated[
        Path | None, typer.Option("--from-sacct", metavar="FILE", help="What sacct printed; gzip too.")
    ] = None,
    from_journal: Annotated[
        bool, typer.Option("--from-journal", help="What an arbiter saw, in any mode: no dump needed.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(help="Of the journal, jobs of its last so long: 12h, 7d, D-HH:MM:SS.")
    ] = None,
    policies: Annotated[str, typer.Option(metavar="A,B", help="Policies to try; none: the history alone.")] = "",
    cluster: Annotated[
        str | None, typer.Option(metavar="SPEC", help="v100:8x4, or a file; default: most ever held at once.")
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

    `SLURM_BITSTR_LEN=0 SLURM_TIME_FORMAT=%s sacct -a -D -P -S 2025-01-01 -E now
    -o JobIDRaw,JobID,User,Account,State,Submit,Eligible,Start,End,ElapsedRaw,AllocTRES,ReqTRES,NodeList
    > year.txt`

    The history is arithmetic on the dump and exact. What sacct cannot tell (which jobs could be resized, how they
    scale, what a restart costs) is assumed, and a policy's mean wait is a band over the assumptions. Nothing is changed
    anywhere. Exit code 3: the dump or journal is malformed, and where.

    Or ask the arbiter's own journal, beside the living arbiter: after a week of `mode: observe`, `--from-journal
    --since 7d` says what enforcing would have done.
    """
    from horae.sim.traces.writing import writable
    from horae.sim.whatif import answer as of
    from horae.sim.whatif.answer import WhatIf
    from horae.sim.whatif.replay import Assumption
    from policy import catalogue

    if (from_sacct is None) is not from_journal:
        raise typer.BadParameter("say one of --from-sacct FILE and --from-journal")
    if not from_journal:
        _of_journals_only({"STATE": where, "--since": since})
    elif skip_bad:
        raise typer.BadParameter("a journal is whole or refused", param_hint="--skip-bad")
    writable(html, "--html", [from_sacct] if from_sacct is not None else ())
    names = tuple(catalogue.named(name.strip()).name for name in policies.split(",") if name.strip())
    there = None
    if cluster is not None:
        from horae.sim.engine.cluster import cluster_of

        there = cluster_of(cluster)
    question = WhatIf(names, there, Assumption(elastic, scaling), seed, cpus, skip_bad, levers=html is not None)
    if from_sacct is None:
        since_s = None if since is None else forms.parse_duration(since, "--since")
        source = _state(where)
        answer = of.from_journal(source, question, since_s, told=screen.note)
    else:
        source = from_sacct
        answer, bad = of.from_sacct(source, question, told=screen.note)
        for row in bad:
            screen.note(f"{source}:{row.line}: {row.column}: {row.what}: {row.value}")
    if html is not None:
        from horae.sim.whatif.page import page

        with saved(html) as beside:
            Path(beside).write_text(page(answer, source.name), encoding="utf-8")
    if as_json:
        screen.emit_json(answer)
    else:
        _show(answer)


def _of_journals_only(said: Mapping[str, object]) -> None:
    for hint, value in said.items():
        if value is not None:
            raise typer.BadParameter("belongs to --from-journal (sacct's own -S cuts a dump)", param_hint=hint)


def _state(named: Path | None) -> Path:
    """The folder: as it is named, or as a configuration file says it."""
    from horae.config import Config, load
    from horae.journal.reading import FILE

    config = os.environ.get("HORAE_CONFIG")
    if named is None and not config:
        return Path(Config.model_fields["state_dir"].default)
    named = named or Path(config or "")
    return load(named).state_dir if named.is_file() and named.name != FILE else named


def _show(answer: dict[str, Any]) -> None:
    past, cluster = answer["history"], answer["cluster"]
    wait = past["wait"]
    skipped = ", ".join(f"{n} {why}" for why, n in past["skipped"].items() if n)
    skipped = f" ({skipped})" if skipped else ""
    screen.print_pairs([
        ("jobs", f"{past['jobs']:,}, {past['gpu_jobs']:,} of them ran on GPUs{skipped}"),
        ("cluster", f"{cluster['gpus']} GPUs ({'as given' if cluster['from'] == 'given' else 'most held at once'})"),
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
