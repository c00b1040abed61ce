"""`horae submarine job run`: hand in what was written for Submarine; `job show`, `list` and `kill` for it.

The options are Submarine's, so their words go to the front end as they are: it is found by its entry point (group
`horae.frontends`), a callable `translate(words, user)` whose result names the job and what becomes of each option.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import dropwhile
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn

import typer

from horae.cli import exits
from horae.cli.options import connect, example, kind_of
from horae.cli.wait import until_ended
from horae.tui import screen
from policy.model import BadInput

_LAUNCHERS = ("java", "yarn", "hadoop", "submarine")
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

    Each option is taken, changed, or has no effect and says so; `job run --help` lists them all, `--dry-run` shows
    what would be handed in, and `--strict` refuses what has no effect. `job show --name NAME`, `job kill --name NAME`
    and `job list` are there as well. `--min_workers` and `--max_workers` make the job elastic; `--json` answers for
    programs.
    """
    given = _command(words or [])
    verb = given[1] if given[:1] == ["job"] and len(given) > 1 else ""
    if verb in _JOB_VERBS:
        _JOB_VERBS[verb](given[2:])
        return
    if verb != "run":
        raise BadInput(
            "is no command of Submarine's",
            field="horae submarine",
            value=" ".join(given[:2]),
            remedy="write `horae submarine job run ...`; also job show, job list, job kill",
        )
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
    for place in frontend.upload(found.uploads, _user()):
        screen.note(f"put {place}")
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


def _command(words: list[str]) -> list[str]:
    """From `job` on, of what was written for Submarine's own launchers: `java -cp ... CLASS`, `yarn jar FILE`."""
    launched = Path("".join(words[:1])).name in _LAUNCHERS
    return list(dropwhile(lambda word: word != "job", words)) if launched else words


# --- job show, list, kill ---------------------------------------------------------------------------------


def _list(words: Sequence[str]) -> None:
    said = _verb_options("list", words, named=False)
    rows = [_row(job) for job in _jobs(connect(said.socket))]
    if said.json:
        screen.emit_json({"jobs": rows})
        return
    for row in rows:
        print(_line(row))


def _show_job(words: Sequence[str]) -> None:
    said = _verb_options("show", words, named=True)
    row = _row(_newest(connect(said.socket), said.name))
    if said.json:
        screen.emit_json(row)
        return
    for key, value in row.items():
        print(f"{key:<8} {value}")


def _kill(words: Sequence[str]) -> None:
    said = _verb_options("kill", words, named=True)
    client = connect(said.socket)
    row = _row(_newest(client, said.name))
    if row["state"] in _ENDED:
        raise BadInput(f"has ended: {row['state']}", field="--name", value=said.name, remedy="there is nothing to kill")
    client.cancel(str(row["job"]), "submarine job kill")
    print(f"Job {row['job']} ({said.name}) is ended")


_JOB_VERBS: Mapping[str, Callable[[Sequence[str]], None]] = {"list": _list, "show": _show_job, "kill": _kill}
_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class _Said:
    name: str = ""
    json: bool = False
    socket: Path | None = None


def _verb_options(verb: str, words: Sequence[str], *, named: bool) -> _Said:
    """`--name NAME`, as Submarine wrote it, `-name NAME`, `--name=NAME`; and Horae's own --json, --socket."""
    parser = _Parser(prog=f"horae submarine job {verb}", add_help=True, allow_abbrev=False)
    if named:
        parser.add_argument("--name", "-name", required=True, help="the job's name")
    parser.add_argument("--verbose", "-verbose", action="store_true", help="Submarine's own; no effect")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--socket", type=Path, help="the arbiter's socket; default: found by itself")
    found = parser.parse_args(list(words))
    return _Said(getattr(found, "name", ""), found.json, found.socket)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(message, field=self.prog, remedy=f"`{self.prog} --help` says how")


def _jobs(client: Any) -> list[dict[str, Any]]:
    """Of this user, ended ones too, newest last."""
    from horae.api.peers import user_name

    mine = user_name(os.getuid())
    found = [job for job in client.status(ended=True)["jobs"] if job.get("owner") in (None, "", mine)]
    return sorted(found, key=lambda job: (job.get("submitted_s") or 0.0, str(job["id"])))


def _newest(client: Any, name: str) -> dict[str, Any]:
    """Submarine's names are unique; of ours the living one counts, else the newest."""
    named = [job for job in _jobs(client) if job["name"] == name]
    if not named:
        raise BadInput("you have no job of this name", field="--name", value=name, remedy="`horae submarine job list`")
    living = [job for job in named if job["state"] not in _ENDED]
    return (living or named)[-1]


def _row(job: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": job["name"], "job": job["id"], "state": job["state"], "gpus": sum(job["allocation"].values())}


def _line(row: Mapping[str, Any]) -> str:
    return "{job:<8} {state:<10} {gpus:>4} GPUs  {name}".format_map(row)


# --- job run ----------------------------------------------------------------------------------------------


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
