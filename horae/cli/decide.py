"""`horae decide`: one decision on one instance, worked out here, without an arbiter."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horae.cli import exits
from horae.cli.options import Json
from horae.tui import screen
from policy.errors import BadInput

if TYPE_CHECKING:
    from policy.contract import Bidding
    from policy.model import Snapshot
    from policy.text.textform import Document

SETTINGS = {
    "epilog": "Example:  `horae decide now.yaml --policy afs-l --set network_packing=true`;  "
    "`horae snapshot | horae decide - --explain train-17`"
}


def decide(
    instance: Annotated[str | None, typer.Argument(help="Instance file, YAML or JSON; `-`: standard input.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy; default: the one that the file names.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Option of the policy.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything left to chance.")] = 0,
    as_json: Json = False,
    job: Annotated[str | None, typer.Option("--explain", metavar="JOB", help="Only why this job gets what.")] = None,
    batch: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="One question a line in, one answer a line out.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="So many rounds of a policy that works in quanta.")] = None,
    bids: Annotated[str | None, typer.Option(metavar="APP", help="The app's bids (themis).")] = None,
    perturb: Annotated[
        str | None, typer.Option(metavar="TENANT", help="Would it pay this tenant to lie? Tries and measures.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="With --perturb: mean over so many seeds.")] = 1,
    time_limit: Annotated[float | None, typer.Option(min=0.0, help="Seconds for mathematical programs.")] = None,
    solver: Annotated[str | None, typer.Option(help="highs or cbc.")] = None,
) -> None:
    """Run one policy once on an instance file and print the decision.

    The calculator for what-if questions, and the replay of a saved snapshot. Exit code 1 when lines of a batch were
    bad, 3 for a bad file.
    """
    if solver not in (None, "highs", "cbc"):
        raise typer.BadParameter("highs or cbc", param_hint="--solver")
    if batch is not None:
        _none_of(instance=instance, policy=policy, options=options, job=job, rounds=rounds, bids=bids, perturb=perturb)
        _batch(batch, time_limit, solver)
        return
    if instance is None:
        raise typer.BadParameter("name an instance file, or --batch", param_hint="INSTANCE")
    if [job, rounds, bids, perturb].count(None) < 3:
        raise typer.BadParameter("one of --explain, --rounds, --bids and --perturb at a time")
    from horae.tables import table
    from policy.contract import Context
    from policy.decide import judged
    from policy.text import answer
    from policy.text.instance import from_document
    from policy.text.textform import load_file
    from policy.throughput import Throughput
    from policy.trials import rounds as many
    from policy.trials.perturb import perturb as judge

    document = load_file(instance)
    snapshot = from_document(document, table)
    entry, given = _choose(snapshot, document, policy, options_of(options or []))
    if perturb is not None:
        judgement = judge(snapshot, perturb, entry.name, given, seed, seeds, time_limit, solver)
        _show_judgement(judgement.to_plain(), as_json)
        return
    context = Context(Throughput(snapshot.cluster), seed, time_limit, solver)
    if bids is not None:
        _show_bids(_bidding(entry.name).table(snapshot, given, context, bids), as_json)
        return
    fractions: Mapping[str, float] | None = None
    with _in_file(document):
        if rounds is not None:
            played = many.run(snapshot, rounds, entry.name, given, seed, time_limit, solver)
            decision, fractions = played.decision, played.fractions
        else:
            decision = judged(snapshot, entry, given, context)
    if job is not None and job not in decision.reasons:
        raise exits.Failure(exits.NO_SUCH_JOB, f"no job {job!r} in {instance}", f"it has {_some(decision.reasons)}")
    plain = answer.to_plain(decision)
    if fractions is not None:
        plain["fractions"] = dict(fractions)
    from horae.cli import decision as view

    if job is not None:
        view.show_job(job, plain, as_json)
    elif as_json:
        screen.emit_json(plain)
    else:
        view.show(plain, snapshot)


@contextmanager
def _in_file(document: Document) -> Iterator[None]:
    """What a policy cannot go on from is told with its line."""
    try:
        yield
    except BadInput as error:
        if error.field != "state":
            raise
        raise document.bad(("state",), error.message, remedy=error.remedy) from error


def _bidding(policy: str) -> Bidding:
    from policy import catalogue

    found = catalogue.bidding(policy)
    if found is None:
        able = [e.name for e in catalogue.entries().values() if e.bids is not None]
        raise typer.BadParameter(f"{policy} takes no bids; {', '.join(able) or 'no policy'} does", param_hint="--bids")
    return found


def _none_of(**given: object) -> None:
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise typer.BadParameter(f"a batch says {', '.join(wrong)} line by line", param_hint="--batch")


def options_of(words: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} is not KEY=VALUE", param_hint="--set")
        out[key.strip()] = value
    return out


def _choose(snapshot: Snapshot, document: Document, policy: str | None, given: dict[str, str]) -> Any:
    """The policy and its options; what the command line got wrong is a usage error, the rest is the file's."""
    from policy.catalogue import named
    from policy.decide import choose

    try:
        return choose(snapshot, None if policy is None else named(policy).name, given)
    except BadInput as error:
        if _from_command_line(error, policy, given):
            where = error.field.removeprefix("policy.")
            raise exits.Failure(exits.USAGE, f"{where}: {error.message}", error.remedy) from error
        place = tuple(error.field.split("."))
        raise document.bad(place, error.message, value=error.value, remedy=error.remedy) from error


def _from_command_line(error: BadInput, policy: str | None, given: Mapping[str, str]) -> bool:
    key = error.field.removeprefix("policy.options.")
    return (error.field == "policy.name" and policy is not None) or error.field == "policy" or key in given


def _some(names: Mapping[str, object]) -> str:
    first = list(names)[:8]
    return ", ".join(first) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _batch(batch: Path, time_limit: float | None, solver: str | None) -> None:
    from horae.tables import table
    from policy.text import files
    from policy.trials.batch import answers

    bad = 0
    named = str(batch) != "-"
    stream = io.TextIOWrapper(files.opened(batch), encoding="utf-8", errors="replace") if named else sys.stdin
    with stream:
        for plain in answers(stream, str(batch), tables=table, time_limit_s=time_limit, solver=solver):
            bad += "error" in plain
            screen.emit_json_line(plain)
    if bad:
        raise exits.Failure(exits.NO, f"{bad} lines of {batch} were bad", "their errors are in the output, in order")


def _show_judgement(plain: dict[str, Any], as_json: bool) -> None:
    if as_json:
        screen.emit_json(plain)
        return
    print(f"{plain['policy']}: tenant {plain['tenant']} truly gets {plain['throughput']:.4g} (normalised throughput)\n")
    rows = [
        (lie["kind"], lie["what"], f"{lie['throughput']:.4g}", f"{lie['gain']:+.1%}")
        for lie in sorted(plain["lies"], key=lambda lie: -lie["gain"])
    ]
    columns = (
        screen.Column("LIE"),
        screen.Column("REPORTED"),
        screen.Column("GETS", right=True),
        screen.Column("GAIN"),
    )
    screen.table(columns, rows)
    best = plain["best"]
    print(f"\n{'no lie of these pays' if best is None else 'a lie pays: ' + best['what']}")


def _show_bids(rows: list[dict[str, Any]], as_json: bool) -> None:
    from horae.tui import forms

    if as_json:
        screen.emit_json({"bids": rows})
        return
    columns = (screen.Column("GPUS", right=True), screen.Column("RHO", right=True), screen.Column("NODES"))
    cells = [(str(r["gpus"]), f"{r['rho']:.4g}", forms.allocation(r["nodes"])) for r in rows]
    screen.table(columns, cells)
