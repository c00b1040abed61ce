"""Options that many commands share, and the connection they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horae import job_number
from horae.elastic.files import saved
from horae.tui import screen
from policy.errors import BadInput

if TYPE_CHECKING:
    from horae.api.client import Client


def example(*commands: str) -> str:
    """The line below a command's help."""
    return "[dim]Example:[/dim]  " + "[dim];[/dim]  ".join(f"[bold]{command}[/bold]" for command in commands)


Socket = Annotated[
    Path | None,
    typer.Option("--socket", envvar="HORAE_SOCKET", help="The arbiter's socket.", show_default="found by itself"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: times in seconds, nothing folded.")]


@contextmanager
def drawn(picture: Path) -> Iterator[Path]:
    """Where to draw it: whole afterwards, or as it was. A name without an ending gets the one that is drawn then."""
    picture = picture if picture.suffix else picture.with_suffix(".png")
    with saved(picture) as beside:
        yield Path(beside)
    screen.note(f"drawn: {picture}")


def connect(socket: Path | None, cluster: str | None = None) -> Client:
    """A client of the arbiter at `socket`, or of the one that is found.

    `cluster`: the kind that it must be (yarn, slurm, local). Raises BadInput for an arbiter of another.
    """
    from horae.api.client import Client, find_socket

    client = Client(find_socket(socket, cluster))
    if cluster is not None and kind_of(found := str(client.about()["cluster"])) != cluster:
        raise BadInput(
            f"the arbiter at {client.socket} is that of another cluster: {found}",
            field="--cluster",
            value=cluster,
            remedy="say --socket PATH of the right one",
        )
    return client


def kind_of(cluster: str) -> str:
    """The kind of a cluster as an arbiter tells of it: its first word."""
    return cluster.partition(" ")[0]


def kind_of_cluster(socket: Path | None, cluster: str | None = None) -> str:
    """That of the arbiter which `connect` finds."""
    return kind_of(str(connect(socket, cluster).about()["cluster"]))


def job_names(incomplete: str) -> list[str]:
    """Completion: numbers of the jobs that have not ended. Silent when no arbiter answers."""
    from horae.api.client import Client, Unreachable, find_socket
    from horae.api.errors import ApiError

    try:
        jobs = Client(find_socket(), timeout_s=1.0).status(brief=True)["jobs"]
    except (Unreachable, ApiError):
        return []
    return [job_number(job["id"]) for job in jobs if job["id"].startswith(incomplete)]


_CALLED = "{}: by number, or by a name that only one of yours has."
JobArgument = Annotated[str, typer.Argument(help=_CALLED.format("The job"), metavar="JOB", autocompletion=job_names)]
JobArguments = Annotated[
    list[str], typer.Argument(help=_CALLED.format("Jobs"), metavar="JOB...", autocompletion=job_names)
]
