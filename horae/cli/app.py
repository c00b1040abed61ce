"""From the words on the command line to an exit code: find the command, run it, turn every failure into words.

Exit codes are those of docs/architecture.md. What is not foreseen becomes a report in a file and exit 70; a
traceback never reaches the screen.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import typer

from horae import visible
from horae.cli import COMMANDS, exits, short

_MARKUP = re.compile(r"\[(?=[a-z#/@])")  #: what typer would take for a colour, and swallow
#: What people type who know other schedulers, and what does it here.
ELSEWHERE = {
    **dict.fromkeys(("squeue", "sacct", "ps", "queue", "list", "jobs", "pending"), "status"),
    **dict.fromkeys(("sinfo", "nodes"), "status --nodes"),
    **dict.fromkeys(("sbatch", "run"), "submit"),
    **dict.fromkeys(("srun", "salloc", "interactive", "shell", "notebook"), "submit --interactive"),
    **dict.fromkeys(("scancel", "kill", "stop"), "cancel"),
    **dict.fromkeys(("log", "tail", "output"), "logs"),
    **dict.fromkeys(("why", "describe", "show"), "explain"),
    **dict.fromkeys(("seff", "efficiency"), "report"),
    **dict.fromkeys(("tenants", "shares", "sshare", "budgets", "quota"), "status --tenants"),
    **dict.fromkeys(("reservations", "maintenance"), "status --nodes"),
    "release": "unhold",
    "watch": "top",
    "nice": "priority",
    "init": "config init",
    "check": "config check",
    "start": "serve",
}
CONTEXT = {"help_option_names": ["-h", "--help"]}


def run(arguments: Sequence[str]) -> int:
    """Run `horae ARGUMENTS` and return its exit code. Raises Unwritten."""
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except typer.Abort:  # a question that nobody answered
        return exits.explain(exits.Failure(exits.NO, "nothing was done", "say --yes where nobody is asked"), arguments)
    except visible.Unwritten:  # who made the streams tells it
        raise
    except Exception as error:  # noqa: BLE001 - the one place where everything ends
        return exits.explain(error, arguments)


def _invoke(arguments: Sequence[str]) -> int:
    wanted = _wanted(arguments)
    if (here := ELSEWHERE.get(wanted[0]) if wanted else None) is not None and "_HORAE_COMPLETE" not in os.environ:
        raise exits.Failure(exits.USAGE, f"there is no command {wanted[0]}", f"`horae {here}` does that")
    if (
        list(wanted[:1]) == ["status"]
        and "_HORAE_COMPLETE" not in os.environ
        and (done := _at_once(arguments)) is not None
    ):
        return done
    # The others are there for help, completion and who mistypes a name; each costs as much as one that is used.
    alone = len(wanted) == 1 and wanted[0] in COMMANDS and "_HORAE_COMPLETE" not in os.environ
    root = application(wanted, among=wanted if alone else COMMANDS)
    command = typer.main.get_command(root)
    _readable(command)
    standalone = not exits.wants_json(arguments)  # else what is wrong with the words is told as every failure is
    try:
        return command.main(list(arguments), prog_name="horae", standalone_mode=standalone) or exits.DONE
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else exits.DONE


def _at_once(arguments: Sequence[str]) -> int | None:
    """Run what is asked for most without what it does not need; None: nothing was done, it is not as plain as that."""
    from horae.cli.status import status

    found = short.values(status, arguments[1:])
    if found is None:
        return None
    gc.disable()  # what it makes is all in use until it ends
    try:
        status(**found)
    except typer.Exit as end:
        return end.exit_code
    finally:
        gc.enable()
    return exits.DONE


def _wanted(arguments: Sequence[str]) -> Sequence[str]:
    """The command to load: the first word, or while completing a line every word on it."""
    if "_HORAE_COMPLETE" in os.environ:
        return os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    return arguments[:1]


def application(load: Collection[str] = COMMANDS, *, among: Collection[str] = COMMANDS) -> typer.Typer:
    """The tree of the commands in `among`; only those of `load` are imported, the others are names with help."""
    root = typer.Typer(
        name="horae",
        add_completion="_HORAE_COMPLETE" in os.environ,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        rich_markup_mode="rich",
    )
    root.callback(invoke_without_command=False)(_root)
    for name, (module_name, help_line) in COMMANDS.items():
        if name not in among:
            continue
        if name not in load:
            root.command(name, help=help_line)(_root)
            continue
        module = importlib.import_module(module_name)
        app = getattr(module, "app", None)
        if isinstance(app, typer.Typer):
            root.add_typer(app, name=name, help=app.info.help or help_line)
        else:
            function: Callable[..., Any] = getattr(module, name.replace("-", "_"))
            root.command(name, **getattr(module, "SETTINGS", {}))(function)
    return root


def _readable(command: Any) -> None:
    """Help as its text is: a bracket is one and no markup, and lines end where the terminal's do."""
    if command.help:
        paragraphs = []
        for paragraph in inspect.cleandoc(command.help).split("\n\n"):
            paragraphs.append(paragraph.replace("\n", " "))
        command.help = _MARKUP.sub(r"\\[", "\n\n".join(paragraphs))
    for parameter in command.params:
        if text := getattr(parameter, "help", None):
            parameter.help = _MARKUP.sub(r"\\[", text)
    for below in getattr(command, "commands", {}).values():
        _readable(below)


def _version(wanted: bool) -> None:
    if wanted:
        from horae import __version__

        typer.echo(f"horae {__version__}")
        raise typer.Exit()


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fair, elastic GPU scheduling of deep-learning training."""
