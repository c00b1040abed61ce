"""The `horae` command: one file a command group, no logic here or there.

Commands are loaded when they are called, so that `horae --help` costs no imports. `COMMANDS` is the one list:
name -> (module, one line of help). A module holds a typer application or a plain function of the command's name.
"""

from __future__ import annotations

import sys

COMMANDS: dict[str, tuple[str, str]] = {
    "decide": ("horae.cli.decide", "Run one policy once on an instance file and print the decision."),
    "schema": ("horae.cli.schema", "Print the JSON Schema of a file form: instance, config."),
    "policies": ("horae.cli.policies", "List the policies: paper, section, what each needs and guarantees."),
    "lab": ("horae.cli.lab", "Bring up, use and take down a mini-cluster of real daemons on this machine."),
    "doctor": ("horae.cli.doctor", "Prove by harmless probes that a cluster can be run by Horae; print the fixes."),
    "install": ("horae.cli.install", "Put Horae's pieces onto a cluster's hosts; shows every change first."),
    "uninstall": ("horae.cli.uninstall", "Take them away again, byte for byte."),
}


def main(argv: list[str] | None = None) -> int:
    from horae.cli.app import run

    return run(sys.argv[1:] if argv is None else argv)
