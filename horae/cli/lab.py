"""`horae lab up|down|status|demo KIND`: mini-clusters on one machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.options import Json, example
from horae.lab import Lab, LabRequest, LabState, check_name, labs, parse_gpus
from horae.tui import screen
from policy.model import BadInput

app = typer.Typer(
    help="Mini-clusters on this machine: real daemons, virtual GPUs.",
    epilog=example("horae lab up slurm", "horae lab status slurm", "horae lab down slurm"),
    no_args_is_help=True,
)

Kind = Annotated[str, typer.Argument(help="slurm, hadoop: what `horae lab list` shows")]
Name = Annotated[str, typer.Option("--name", help="several labs of one kind live side by side")]
Release = Annotated[str, typer.Option("--release", help="of the cluster's software; empty: the lab's own default")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, max=64)]
Gpus = Annotated[str, typer.Option("--gpus", help="kinds of node, dealt out over the nodes: v100:4,k80:4")]
Engine = Annotated[
    str,
    typer.Option("--engine", help="docker; process: plain processes of yours; empty: docker where an engine answers"),
]
Kerberos = Annotated[
    bool, typer.Option("--kerberos", help="hadoop: under Kerberos, with a KDC of its own; plain processes")
]
Standbys = Annotated[
    bool, typer.Option("--standbys", help="hadoop: two NameNodes, two ResourceManagers; plain processes")
]
Folder = Annotated[Path | None, typer.Option("--folder", help="where it keeps its files")]


@app.command("list", epilog=example("horae lab list"))
def list_labs(as_json: Json = False) -> None:
    """The kinds of lab, their releases and engines."""
    if as_json:
        found = {
            name: {"releases": list(lab.releases), "engines": list(lab.engines)} for name, lab in sorted(labs().items())
        }
        screen.emit_json(found)
        return
    for name, lab in sorted(labs().items()):
        print(f"{name:10} {', '.join(lab.releases):24} {', '.join(lab.engines)}")


@app.command(epilog=example("horae lab up slurm --nodes 2 --gpus v100:4"))
def up(
    kind: Kind,
    name: Name = "lab",
    release: Release = "",
    nodes: Nodes = 8,
    gpus: Gpus = "v100:4,k80:4",
    engine: Engine = "",
    kerberos: Kerberos = False,
    standbys: Standbys = False,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Bring a lab up; nothing happens when it is up already."""
    features = frozenset(word for word, wanted in (("kerberos", kerberos), ("standbys", standbys)) if wanted)
    request = replace(_request(name, release, nodes, gpus, engine, folder), features=features)
    _show(_lab(kind, engine).up(request), as_json)


@app.command(epilog=example("horae lab down slurm"))
def down(kind: Kind, name: Name = "lab", folder: Folder = None, as_json: Json = False) -> None:
    """Take it down and remove what it made, by its label."""
    _show(_lab(kind).down(_request(name, folder=folder)), as_json, wanted=False)


@app.command(epilog=example("horae lab status slurm"))
def status(kind: Kind, name: Name = "lab", folder: Folder = None, as_json: Json = False) -> None:
    """Its nodes, and the options by which `horae serve` reaches it."""
    _show(_lab(kind).status(_request(name, folder=folder)), as_json)


@app.command(epilog=example("horae lab demo slurm"))
def demo(
    kind: Kind,
    name: Name = "lab",
    release: Release = "",
    nodes: Nodes = 8,
    gpus: Gpus = "v100:4,k80:4",
    engine: Engine = "",
    folder: Folder = None,
) -> None:
    """Real elastic training jobs on the lab, grown, moved and shrunk."""
    raise typer.Exit(_lab(kind, engine).demo(_request(name, release, nodes, gpus, engine, folder)))


def _lab(kind: str, engine: str = "") -> Lab:
    known = labs()
    if kind not in known:
        raise BadInput(f"no lab '{kind}'", where="horae lab", value=kind, remedy=f"one of {', '.join(sorted(known))}")
    if engine and engine not in known[kind].engines:
        raise BadInput(
            f"{kind} has no engine '{engine}'", where="--engine", value=engine, remedy=", ".join(known[kind].engines)
        )
    return known[kind]


def _request(
    name: str,
    release: str = "",
    nodes: int = 8,
    gpus: str = "v100:4,k80:4",
    engine: str = "",
    folder: Path | None = None,
) -> LabRequest:
    return LabRequest(
        name=check_name(name),
        release=release,
        nodes=nodes,
        gpus=parse_gpus(gpus),
        engine=engine,
        folder=folder or Path(),
    )


def _show(state: LabState, as_json: bool, wanted: bool = True) -> None:
    if as_json:
        screen.emit_json({"name": state.name, "up": state.up, "text": state.text, "facts": dict(state.facts)})
    else:
        print(f"{state.name}: {'up' if state.up else 'down'}")
        print(state.text)
        for key, value in state.facts.items():
            print(f"  {key}: {value}")
    if state.up is not wanted:
        raise typer.Exit(1)
