"""`horae submarine job run`: hand in what was written for Submarine.

The options are Submarine's, so their words go to the front end as they are: it is found by its entry point (group
`horae.frontends`), a callable `translate(words, user)` whose result names the job and what becomes of each option.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from horae.cli import exits
from horae.cli.options import connect, example, kind_of
from horae.cli.wait import until_ended
from horae.tui import screen
from policy.model import BadInput

_COMMAND = "horae submarine job run --name mnist --num_workers 2 --min_workers 1 --max_workers 8 ..."
SETTINGS = {
    "context_settings": {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    "epilog": example(_COMMAND, "horae submarine job run -f job.yaml --dry-run"),
}


def submarine(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="job run [OPTIONS]", help="The command of Submarine 0.2 to 0.6.")
    ] = None,
) -> None:
    """Hand in a job that was written for Submarine, as it is.

    Each option is taken, changed or refused with what to do; `job run --help` lists them all, and `--dry-run` shows
    what would be handed in. `--min_workers` and `--max_workers` make the job elastic; `--json` answers for programs.
    """
    given = words or []
    if given[:2] != ["job", "run"]:
        said = " ".join(given[:2])
        remedy = "`horae status` shows jobs" if said == "job show" else "write `horae submarine job run ...`"
        raise BadInput("only `job run` is known", field="horae submarine", value=said, remedy=remedy)
    frontend = _frontend()
    found = frontend.translate(given[2:], _user())
    if found.help:
        _options(frontend.OPTIONS)
        return
    if found.dry_run:
        _show(found)
        return
    from horae.api.client import Client

    client: Client = connect(Path(found.socket) if found.socket else None)
    _check_cluster(client, found.job)
    (number,) = client.submit([found.job])
    if found.json:
        screen.emit_json({"jobs": [number], **_described(found)})
    else:
        print(f"Submitted job {number}", flush=True)
        if found.verbose:
            _table(found.lines, sys.stderr)
        else:
            for line in found.lines:
                if line.fate in ("changed", "no effect"):
                    screen.note(f"{line.option}: {line.text}")
    if found.wait:
        raise typer.Exit(_wait(client, number))


def _frontend() -> Any:
    points = [point for point in entry_points(group="horae.frontends") if point.name == "submarine"]
    if not points:
        raise BadInput("the YARN bridge is not installed", field="horae submarine", remedy="pip install 'horae[yarn]'")
    return points[0].load()


def _check_cluster(client: Any, job: Any) -> None:
    """Raises BadInput where the job asks for what only YARN has: another cluster would not even see it."""
    cluster = str(client.about()["cluster"])
    asked = sorted(name for name in job["extra"] if name.startswith("yarn."))
    if asked and kind_of(cluster) != "yarn":
        raise BadInput(
            f"its queue, files, images or keytab are for YARN, and this arbiter's cluster is {cluster}",
            field="horae submarine",
            value=", ".join(asked),
            remedy="say --socket PATH of the arbiter of a YARN cluster, or leave those options out",
        )


def _user() -> str:
    """Whose HDFS home the default paths are in: as Hadoop's own client says it."""
    from horae.api.peers import user_name

    return os.environ.get("HADOOP_USER_NAME") or user_name(os.getuid())


def _described(found: Any) -> dict[str, Any]:
    lines = [{"option": n.option, "value": n.value, "fate": str(n.fate), "text": n.text} for n in found.lines]
    return {"job": found.job, "options": lines}


def _show(found: Any) -> None:
    if found.json:
        screen.emit_json(_described(found))
        return
    import yaml

    print("# nothing was handed in; this would be:")
    print(yaml.safe_dump(found.job, sort_keys=False, allow_unicode=True), end="")
    print("# option by option:")
    _table(found.lines, sys.stdout)


def _table(lines: Any, file: IO[str]) -> None:
    for line in lines:
        print(f"{line.fate:<10} {line.option} {_short(line.value)}", file=file)
        print(_wrapped(line.text), file=file)


def _wrapped(text: str) -> str:
    width, margin = shutil.get_terminal_size().columns - 1, " " * 11
    return textwrap.fill(text, width, initial_indent=margin, subsequent_indent=margin)


def _short(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= 40 else line[:37] + "..."


def _options(options: Any) -> None:
    print("Options of `job run` and the release that brought each. `--name x`, `-name x`, `--name=x` are the same.")
    for option in options:
        since = f"since {option.since}" if option.since[0].isdigit() else f"{option.since}'s own"
        print(f"{'-' if option.name == 'f' else '--'}{option.name} ({since}): {option.fate}")
        print(_wrapped(option.text))


def _wait(client: Any, number: str) -> int:
    """Until the job has ended."""
    state = until_ended(lambda: client.job(number))["state"]
    print(f"Job {number} {state}")
    return exits.DONE if state == "completed" else exits.NO
