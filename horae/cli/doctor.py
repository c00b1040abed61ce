"""`horae doctor KIND`: what a cluster lets us do, proved by harmless probes, with the fix for what is missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from horae import sites
from horae.cli.install import _pairs

Set = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of the cluster's options, again and again")]


def doctor(
    kind: Annotated[str, typer.Argument(help="slurm")],
    set_: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """Exit code 1 when enforce mode cannot work here."""
    findings = sites.site(kind).doctor(_pairs(set_ or []))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.verdict.upper():4}  {finding.what}: {finding.seen}")
            if finding.fix and finding.verdict is not sites.Verdict.OK:
                print(f"      -> {finding.fix}")
    if any(finding.verdict is sites.Verdict.FAIL for finding in findings):
        raise typer.Exit(1)
