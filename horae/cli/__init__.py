"""The `horae` command: one file a command group, no logic here or there.

Commands are loaded when they are called, so that `horae --help` costs no imports. `COMMANDS` is the one list:
name -> (module, one line of help). A module holds a typer application named `app`, or a plain function of the
command's name.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO, cast

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("horae.cli.demo", "Watch real training jobs share a small cluster on this machine."),
    "serve": ("horae.cli.serve", "Run the arbiter of one cluster."),
    "submit": ("horae.cli.submit", "Hand in a training job, or a file of them."),
    "submarine": ("horae.cli.submarine", "Hand in a job written for Submarine, as it is: `submarine job run ...`."),
    "status": ("horae.cli.status", "Show jobs, nodes and tenants, as squeue and sinfo do."),
    "top": ("horae.cli.top", "Watch jobs, nodes, shares and decisions live."),
    "apps": ("horae.cli.apps", "List apps of several jobs: sweeps with phase, trials, bids."),
    "explain": ("horae.cli.explain", "Say why a job holds what it holds, and what would change it."),
    "report": ("horae.cli.report", "Say what became of a job's GPU time, and what would have been better."),
    "attach": ("horae.cli.attach", "Watch one job live: its loss, its progress, what happens to it."),
    "logs": ("horae.cli.output", "Print what a job printed; --follow goes on."),
    "wait": ("horae.cli.wait", "Wait until jobs have ended, and end as they did."),
    "history": ("horae.cli.history", "List what happened to a job, a tenant or the cluster."),
    "cancel": ("horae.cli.cancel", "End jobs for good."),
    "hold": ("horae.cli.hold", "Keep jobs from running; a running one checkpoints and leaves."),
    "unhold": ("horae.cli.hold", "Let held jobs run again."),
    "priority": ("horae.cli.priority", "Move jobs in line: before or behind others of their tenant."),
    "snapshot": ("horae.cli.snapshot", "Save what the policy sees now, as an instance file."),
    "decide": ("horae.cli.decide", "Run one policy once on an instance file and print the decision."),
    "schema": ("horae.cli.schema", "Print the JSON Schema of a file form: instance, config."),
    "profile": ("horae.cli.profile", "Read training logs of any form: progress, iteration time, loss, failures."),
    "policies": ("horae.cli.policies", "List the policies: paper, section, what each needs and guarantees."),
    "what-if": ("horae.cli.what_if", "A site's own history, and what other policies would have made of the same jobs."),
    "trace": ("horae.cli.trace", "Look at a trace of jobs, or make another one: describe, sample, scale, fit."),
    "config": ("horae.cli.config", "Check, explain or write a configuration file."),
    "lab": ("horae.cli.lab", "Bring up, use and take down a mini-cluster of real daemons on this machine."),
    "install": ("horae.cli.install", "Put Horae's pieces onto a cluster's hosts; shows every change first."),
    "uninstall": ("horae.cli.uninstall", "Take them away again, byte for byte."),
    "release-all": ("horae.cli.release", "Hand every job back to the cluster's own scheduler."),
    "doctor": ("horae.cli.doctor", "Check this installation and its cluster, with remedies."),
    "simulate": ("horae.cli.simulate", "Play a trace of jobs under a policy: what would have happened, in seconds."),
    "compare": ("horae.cli.compare", "Play a trace under many policies: table, CSV and pictures."),
    "reproduce": ("horae.cli.reproduce", "Compute a paper's figure or table again, and compare."),
    "completion": ("horae.cli.completion", "Print the completion script of a shell."),
}

_JOBS = "submit submarine status apps top explain report attach logs wait history hold unhold priority cancel"
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Try it", ("demo", "lab")),
    ("Jobs", tuple(_JOBS.split())),
    ("Decisions", ("snapshot", "decide", "profile", "policies", "schema")),
    ("What if", ("what-if", "simulate", "compare", "reproduce", "trace")),
    ("Site", ("serve", "config", "install", "uninstall", "release-all", "doctor", "completion")),
)


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    from horae import visible

    for size in ("COLUMNS", "LINES"):
        if os.environ.get(size) == "0":  # whoever set it does not know; taken at its word there is room for nothing
            del os.environ[size]
    plain, plain_error = _stream(sys.stdout), _stream(sys.stderr)
    sys.stdout = cast(TextIO, visible.Guarded(plain))
    sys.stderr = cast(TextIO, visible.Guarded(plain_error))
    try:
        return _run(arguments)
    except visible.Unwritten as stuck:
        from horae.cli import exits

        return exits.unwritten(stuck.error, arguments)
    finally:
        sys.stdout, sys.stderr = plain, plain_error


def _run(arguments: list[str]) -> int:
    """What is asked for most without a command's imports. Raises Unwritten."""
    if "_HORAE_COMPLETE" not in os.environ and (not arguments or arguments[0] in ("-h", "--help", "help")):
        if len(arguments) < 2:
            return _say(overview(sys.stdout.isatty() and "NO_COLOR" not in os.environ))
        arguments = [*arguments[1:], "--help"]
    if arguments == ["--version"]:
        from horae import __version__

        return _say(f"horae {__version__}\n")
    try:
        from horae.cli.app import run
    except ImportError as error:
        from horae import visible
        from horae.extras import displaced

        if not (why := displaced()):
            raise
        sys.stderr.write(f"horae: {visible.neutral(f'{error}: {why}')}\n")
        return 3
    return run(arguments)


def _say(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _stream(found: TextIO | None) -> TextIO:
    """It, or none where it is closed. What the locale has no letters for is written out."""
    if found is None:
        return open(os.devnull, "w")
    if isinstance(found, io.TextIOWrapper):
        found.reconfigure(errors="backslashreplace")
    return found


def overview(colour: bool = False) -> str:
    """The page `horae --help` prints: written by hand because building it from typer costs ten times the start."""
    bold, dim, off = ("\x1b[1m", "\x1b[36m", "\x1b[0m") if colour else ("", "", "")
    lines = [
        f"{bold}horae{off}: fair, elastic GPU scheduling of deep-learning training on Slurm, YARN and one machine.",
        "",
        f"{bold}Usage:{off} horae COMMAND [OPTIONS]",
    ]
    grouped = {name for _, names in GROUPS for name in names}
    rest = tuple(name for name in COMMANDS if name not in grouped)
    for title, names in (*GROUPS, *((("More", rest),) if rest else ())):
        lines += ["", f"{bold}{title}{off}"]
        lines += [f"  {dim}{name:<12}{off} {COMMANDS[name][1]}" for name in names if name in COMMANDS]
    lines += [
        "",
        "`horae COMMAND --help` shows a command's options and an example; what tells something takes --json.",
        "Exit codes: 0 done, 1 the answer is no or some inputs were bad, 2 usage, 3 bad input file, 4 no such job,",
        "5 not allowed, 6 arbiter or cluster out of reach (try again), 70 a bug.",
        "",
    ]
    return "\n".join(lines)
