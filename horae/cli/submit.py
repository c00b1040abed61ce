"""`horae submit`: hand in jobs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from horae import job_number
from horae.cli.options import Json, Socket, connect, example, kind_of_cluster
from horae.cli.wait import waited
from horae.elastic.files import unwritable
from horae.tui import forms, screen
from horae.tui.trial import show_trial
from policy.model import BadInput

if TYPE_CHECKING:
    from horae.api.client import Client
    from horae.arbiter.requests import answers
    from horae.spec import JobSpec

SETTINGS = {
    "context_settings": {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    "epilog": example(
        "horae submit --gpus 1:8 --checkpoint ck -- python train.py --epochs 90",
        "horae submit --dry-run --gpus 1:8 -- python train.py",
        "horae submit -g 1:8 -c ck --sbatch=--partition=gpu --sbatch=--time=12:00:00 -- python train.py",
    ),
}
#: Of a refused job, which of its form's fields; and the options that are not named as those are.
_FIELD = re.compile(r"jobs\[0\]\.(\w+)")
_OPTIONS = {
    "command": "command",
    "model": "--key",
    "gpu_types": "--gpu-type",
    "memory_per_gpu": "--memory",
    "cpus_per_gpu": "--cpus",
    "grace_s": "--grace",
    "time_limit_s": "--time-limit",
    "elastic": "--rigid",
}


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(help="The program and its words, after `--`; run once a GPU.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", "-g", help="4 (rigid), 1:8 (range), 2: (no limit) or 1,2,4,8.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A YAML or JSON file: one job, or `jobs:` with many.")
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option("--sweep", help="A sweep file: one goal, many settings, early stopping.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Default: the program's name.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Default: your user name.")] = None,
    app: Annotated[
        str | None, typer.Option(help="The goal it shares with other jobs; default: one of its own.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Jobs with the same key share profiles.")] = None,
    iterations: Annotated[float | None, typer.Option(help="Total iterations, if you know them.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", "-c", help="Folder or URL; without one it is never stopped.")
    ] = None,
    gpu_type: Annotated[list[str] | None, typer.Option(help="A GPU type it may run on; repeat for more.")] = None,
    prefer_gpu_type: Annotated[
        list[str] | None, typer.Option(help="A type it runs on before others, where there is room.")
    ] = None,
    forbid_gpu_type: Annotated[list[str] | None, typer.Option(help="A type it never runs on.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory a GPU: 16G. Default: the cluster's.")] = None,
    cpus: Annotated[float | None, typer.Option(help="CPUs a GPU. Default: the cluster's.")] = None,
    grace: Annotated[str | None, typer.Option(help="Time it may take to checkpoint and leave.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Running time over all its starts.")] = None,
    requeue: Annotated[
        bool,
        typer.Option("--requeue-at-limit", help="At its limit it checkpoints, leaves, and waits for its next turn."),
    ] = False,
    retries: Annotated[int | None, typer.Option(help="Failures after which it is failed for good.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE for the job; repeat.")] = None,
    export: Annotated[
        str | None,
        typer.Option(
            help="Of this environment: ALL, NONE, or NAME,NAME=VALUE,...; ALL,NAME=VALUE adds. As sbatch's.",
            show_default="ALL on one machine",
        ),
    ] = None,
    cwd: Annotated[Path | None, typer.Option(help="Working folder; default: the present one.")] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option("--sbatch", help="On Slurm: hand it in by sbatch, with this option of its; repeat for more."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Among your tenant's jobs: a higher one stands before others in line.")
    ] = None,
    rigid: Annotated[bool, typer.Option("--rigid", help="Start once at its requested size, never resize.")] = False,
    cluster: Annotated[
        str | None, typer.Option(help="Only to an arbiter of this kind of cluster: yarn, slurm, local.")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="A shell (or the program) here, on granted GPUs.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-W", help="Return when it has ended, with its exit code.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Hand in nothing: say where it would go now, and who would lose what.")
    ] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Hand in a training job, or a file of them.

    Prints each job's number. The job runs as you; options given here win over those of the file. On one machine it
    runs as you typed it: in this folder, with this environment (--export), umask and limits, which are kept in a file
    that only you can read. On Slurm sbatch sees to that.

    --interactive waits until the GPUs are granted and then is your shell, or the program, on this terminal: a rigid
    job of 1 GPU and one hour, unless --gpus and --time-limit say otherwise. It runs once, whatever the GPUs. Leaving it
    ends the job, and the end of the job, or of its limit, ends it. On Slurm it becomes srun --pty, with what --sbatch
    adds (--sbatch=--partition=gpu), on a host that has srun. Not on YARN.

    --dry-run asks the policy with the job and without it: the GPUs that it would get now, whose GPUs would become
    fewer for it, and where it would wait, when enough come free. Nothing is kept. Guards (the time between two resizes
    of a job) may put off what it shows.
    """
    wish: dict[str, Any] = {
        "name": name,
        "tenant": tenant,
        "app": app,
        "model": key,
        "iterations": iterations,
        "checkpoint": _checkpoint(checkpoint),
        "gpu_types": _types(gpu_type, prefer_gpu_type, forbid_gpu_type),
        "memory_per_gpu": memory,
        "cpus_per_gpu": cpus,
        "grace_s": _seconds(grace, "--grace"),
        "time_limit_s": _seconds(time_limit, "--time-limit"),
        "retries": retries,
        "priority": priority,
        "extra": {"requeue_at_limit": "true"} if requeue else None,
        "env": _environment(env or []) or None,
        "elastic": False if rigid else None,
        "command": command or None,
        "gpus": None if gpus is None else forms.range_words(forms.parse_gpus(gpus)),
    }
    given = {name: value for name, value in wish.items() if value is not None}
    folder = str(cwd.absolute()) if cwd else str(Path.cwd())
    if interactive:
        others = {"--file": file, "--sweep": sweep, "--wait": wait, "--dry-run": dry_run}
        others |= {"--requeue-at-limit": requeue, "--json": as_json}
        _check_session(others)
        if sbatch or kind_of_cluster(socket, cluster) == "slurm":
            _by_srun({"cwd": folder, **given}, _sbatch_words(export, sbatch or ()))
        raise typer.Exit(_session({"cwd": folder, **given}, export, socket, cluster))
    jobs = _jobs(given, file, sweep, folder)
    if requeue:
        _check_requeue(jobs, time_limit)
    if sbatch:
        _check_sbatch(cluster, dry_run)
    local = not sbatch and kind_of_cluster(socket, cluster) == "local"
    _try_folders(jobs, must=local)
    if dry_run:
        _check_export(export, local=local)
        with _told_as_typed(file is None and sweep is None):
            found = _tried(connect(socket, cluster), jobs)
        screen.emit_json(found) if as_json else show_trial(found)
        return
    if sbatch:
        numbers = _by_sbatch(jobs, _sbatch_words(export, sbatch))
    else:
        with _told_as_typed(file is None and sweep is None):
            numbers = _handed_in(connect(socket, cluster), jobs, export, local=local)
    _tell(numbers, as_json)
    if wait:
        raise typer.Exit(waited(connect(socket, cluster), numbers, quiet=as_json))


def _jobs(given: dict[str, Any], file: Path | None, sweep: Path | None, folder: str) -> list[dict[str, Any]]:
    """What is handed in: a sweep's trials, a file's jobs, or the one that the options say. Raises BadInput."""
    if sweep is not None:
        if file is not None or given:
            extra = "--file" if file is not None else f"--{next(iter(given)).replace('_', '-')}"
            raise BadInput(
                "says all there is to say", field="--sweep", remedy=f"write it in the sweep file, not {extra}"
            )
        return _from_sweep(sweep, folder)
    if file is not None:
        return _from_file(file, given, folder)
    _complete(given)
    return [{"cwd": folder, **given}]


def _check_requeue(jobs: list[dict[str, Any]], time_limit: str | None) -> None:
    """Raises BadInput for one that has no limit to be requeued at, or nothing to go on from."""
    for job in jobs:
        if not (job.get("checkpoint") and (job.get("time_limit_s") or time_limit)):
            raise BadInput("needs a limit, and a checkpoint to go on from", field="--requeue-at-limit",
                           remedy="say --time-limit and --checkpoint too")  # fmt: skip


def _check_sbatch(cluster: str | None, dry_run: bool) -> None:
    """Raises BadInput for what does not go with --sbatch."""
    if cluster not in (None, "slurm"):
        raise BadInput("is for Slurm", field="--sbatch", remedy=f"take it out, or --cluster {cluster}")
    if dry_run:
        raise BadInput("hands the job to Slurm", field="--sbatch", remedy="--dry-run asks the arbiter: without it")


def _tell(numbers: list[str], as_json: bool) -> None:
    if as_json:
        screen.emit_json({"jobs": numbers})
        return
    for number in numbers:
        print(f"Submitted job {number}", flush=True)


def _checkpoint(said: str | None) -> str | None:
    """A folder is meant from here; a URL is meant as it stands. Raises BadInput for nothing: `$CK` that is not set."""
    if said == "":
        raise BadInput("names no folder", field="--checkpoint", remedy="name one, or leave the option out")
    return said if said is None or "://" in said else str(Path(said).absolute())


def _seconds(said: str | None, option: str) -> float | None:
    return None if said is None else forms.parse_duration(said, option)


def _check_session(others: dict[str, Any]) -> None:
    """Raises BadInput for options that mean nothing to an interactive job."""
    for option, value in others.items():
        if value:
            raise BadInput("is not for --interactive", field=option, remedy="take one of them out")


def _session(given: dict[str, Any], export: str | None, socket: Path | None, cluster: str | None) -> int:
    """An interactive one of this machine."""
    from horae.cli import interactive

    if (kind := kind_of_cluster(socket, cluster)) != "local":
        raise BadInput(f"is for one machine and for Slurm, and this is a cluster of kind {kind}", field="--interactive",
                       remedy="a job with its own log: horae logs -f")  # fmt: skip
    client = connect(socket, cluster)
    with interactive.listening() as (where, listener):
        jobs = [interactive.job_of(given, where)]
        _try_folders(jobs, must=True)
        with _told_as_typed(True):
            (number,) = _handed_in(client, jobs, export, local=True)
        screen.note(f"Submitted job {job_number(number)}")
        return interactive.session(client, number, listener)


@contextmanager
def _told_as_typed(by_options: bool) -> Iterator[None]:
    """What the arbiter refuses of a job that options alone describe names the option, not the form's field."""
    from horae.api.errors import ApiError

    try:
        yield
    except ApiError as error:
        if by_options and (found := _FIELD.match(str(error.more.get("field", "")))):
            error.more["field"] = _OPTIONS.get(found[1], f"--{found[1].replace('_', '-')}")
        raise


def _tried(client: Client, jobs: list[dict[str, Any]]) -> answers.DryRunAnswer:
    """A dry run; others' are waited for, a minute long."""
    from horae.api.errors import ApiError, Code

    until = time.monotonic() + 60.0
    while True:
        try:
            return client.dry_run(jobs)
        except ApiError as error:
            if error.code is not Code.TRY_LATER or time.monotonic() > until:
                raise
        time.sleep(1.0)


def _sent(client: Client, jobs: list[dict[str, Any]]) -> list[str]:
    """The numbers; what the arbiter has to say of them goes to standard error."""
    taken = client.hand_in(jobs)
    for note in taken.get("notes", ()):
        screen.note(f"horae: {note}")
    return list(taken["jobs"])


def _handed_in(client: Client, jobs: list[dict[str, Any]], export: str | None, *, local: bool) -> list[str]:
    """With the environment of this process, where they run on this machine. Raises BadInput."""
    from horae.api.client import Unreachable
    from horae.api.errors import ApiError
    from horae.cli import typed

    _check_export(export, local=local)
    if not local:
        return _sent(client, jobs)
    kept = _kept(export or "ALL")
    try:
        numbers = _sent(client, [{**({} if kept is None else {"typed": str(kept)}), **job} for job in jobs])
    except ApiError:
        if kept is not None:
            kept.unlink()
        raise
    try:
        if kept is not None:
            typed.note(kept, client.socket, numbers)
        typed.swept(client.socket, lambda: [job_number(job["id"]) for job in client.status(brief=True)["jobs"]])
    except (OSError, ApiError, Unreachable) as error:  # they are handed in all the same
        screen.note(f"horae: environments of jobs that are over stay in {typed.folder()} for now: {error}")
    return numbers


def _check_export(export: str | None, *, local: bool) -> None:
    """Raises BadInput for what cannot be carried, or where nothing is."""
    from horae.cli import typed

    if local:
        typed.chosen(export or "ALL", os.environ)
    elif export is not None:
        raise BadInput("is for one machine, and for Slurm with --sbatch", field=typed.FIELD, value=export,
                       remedy="--env NAME=VALUE: kept with the job, where operators can read it")  # fmt: skip


def _kept(export: str) -> Path | None:
    """The file with what the job is to have of this process; None for one that has asked for nothing of it."""
    from horae.cli import typed

    chosen = typed.chosen(export, os.environ)
    try:
        return typed.keep(chosen)
    except BadInput as error:
        if chosen != typed.Chosen():
            raise
        screen.note(f"horae: umask and limits are not carried: {error}")
        return None


def _try_folders(jobs: list[dict[str, Any]], *, must: bool) -> None:
    """Checkpoint and working folders, as the caller: what cannot be used here is said before a training depends on it.

    `must`: the jobs run on this machine. Elsewhere it is a warning, since a node may see other disks, and a word about
    working folders would mean nothing. Raises BadInput.
    """
    for folder in dict.fromkeys(str(job["cwd"]) for job in jobs if must and job.get("cwd")):
        if not os.access(f"{folder}/", os.X_OK):
            why = "you may not enter it" if Path(folder).is_dir() else "there is no such folder"
            raise BadInput(why, field="--cwd", value=folder, remedy="name a folder that you may enter")
    for folder in dict.fromkeys(str(job["checkpoint"]) for job in jobs if job.get("checkpoint")):
        if "://" in folder or not (why := unwritable(folder)):
            continue
        if must:
            raise BadInput(f"{folder} cannot be written: {why}", field="--checkpoint", value=folder,
                           remedy="name a folder that you may write, with room for checkpoints")  # fmt: skip
        screen.note(f"horae: the checkpoint folder {folder} cannot be written here: {why}; can it be on the nodes?")


def _by_sbatch(jobs: list[dict[str, Any]], options: list[str]) -> list[str]:
    """Through Slurm, whose users own their jobs: no arbiter is asked."""
    return list(_submitter().submit(_specs(jobs), options))


def _by_srun(given: dict[str, Any], options: list[str]) -> NoReturn:
    """An interactive one of Slurm's: this process becomes what Slurm has for it."""
    from horae.cli import interactive

    words = _submitter().session(_specs([interactive.rigid(given)])[0], options)
    os.execv(words[0], words)


def _sbatch_words(export: str | None, sbatch: Sequence[str]) -> list[str]:
    return [*([] if export is None else [f"--export={export}"]), *sbatch]


def _specs(jobs: list[dict[str, Any]]) -> list[JobSpec]:
    import getpass
    import json

    from horae.job_form import read_jobs

    owner = getpass.getuser()
    return [
        form.spec(owner=owner, cwd=str(Path.cwd())) for form in read_jobs(json.dumps({"jobs": jobs}), "horae submit")
    ]


def _submitter() -> ModuleType:
    """The module beside the cluster's `submit`, which also has `session`."""
    from importlib import import_module
    from importlib.metadata import entry_points

    (point,) = entry_points(group="horae.submitters", name="slurm")
    return import_module(point.module)


def _complete(given: dict[str, Any]) -> None:
    """Raises BadInput for what a job without a file cannot do without."""
    if "command" not in given:
        raise BadInput("names no program", field="command", remedy="horae submit --gpus 1:4 -- python train.py")
    if "gpus" not in given:
        raise BadInput("is missing", field="--gpus", remedy="one number (4), a range (1:8 or 2:), or a list (1,2,4,8)")


def _types(require: list[str] | None, prefer: list[str] | None, forbid: list[str] | None) -> Any:
    """As the job form takes them: a list, unless more is said."""
    said = {"prefer": prefer, "forbid": forbid}
    wish = {name: types for name, types in said.items() if types}
    return {"require": require or [], **wish} if wish else require or None


def _environment(words: list[str]) -> dict[str, str]:
    out = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput("is no NAME=VALUE", field="--env", value=word, remedy="write --env NAME=VALUE")
        out[name] = value
    return out


def _from_file(path: Path, given: dict[str, Any], folder: str) -> list[dict[str, Any]]:
    """The jobs of a file. Their relative folders count from the file, as people who move it expect."""
    from horae.job_form import fit_jobs
    from policy.text.textform import load_file

    document = load_file(path)
    home = Path(folder) if str(path) == "-" else path.absolute().parent
    jobs = []
    for form in fit_jobs(document):
        job = {**form.model_dump(exclude_unset=True, mode="json"), **given}
        job["cwd"] = str(home / job.get("cwd", "."))
        if "://" not in job.get("checkpoint", "://"):
            job["checkpoint"] = str(home / job["checkpoint"])
        jobs.append(job)
    return jobs


def _from_sweep(path: Path, folder: str) -> list[dict[str, Any]]:
    """The jobs of a sweep. Relative folders count from the file."""
    from horae.sweeps.sweep import read
    from policy.text.textform import load_file

    home = Path(folder) if str(path) == "-" else path.absolute().parent
    jobs = read(load_file(path))
    for job in jobs:
        job["cwd"] = str(home / job.get("cwd", "."))
        if "://" not in job.get("checkpoint", "://"):
            job["checkpoint"] = str(home / job["checkpoint"])
    return jobs
