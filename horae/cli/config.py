"""`horae config`: the configuration file, before an arbiter reads it and while one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from horae import visible
from horae.cli.options import Json, Socket, connect, example
from horae.tui import screen

app = typer.Typer(
    help="Check, show or write a configuration file.",
    epilog=example("horae config init > config.yaml && horae config check config.yaml"),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[Path, typer.Argument(help="The file.", envvar="HORAE_CONFIG")]


@app.command(epilog=example("horae config check /etc/horae/config.yaml"))
def check(config: File, as_json: Json = False) -> None:
    """Read a file as the arbiter would; say what is wrong with line, value and remedy.

    That is every key, the adapter and its options, the policies and theirs. Exit code 3 if anything is wrong. The
    cluster is not touched: that is `horae doctor`.
    """
    from horae.config import load, socket_path
    from horae.configured import check as check_named

    found = load(config)
    check_named(found, str(config))
    if as_json:
        screen.emit_json({"ok": True, "config": found.model_dump(mode="json")})
        return
    print(f"{config}: fine")
    screen.print_pairs([
        ("cluster", found.cluster.adapter),
        ("state", str(found.state_dir)),
        ("socket", str(socket_path(found))),
        *((f"pool {p.name}", f"{p.policy}, {p.mode}, nodes {p.nodes or 'all others'}") for p in found.pools),
    ])  # fmt: skip


@app.command(epilog=example("horae config show", "horae config show config.yaml --json"))
def show(
    config: Annotated[Path | None, typer.Argument(help="A file; default: what the running arbiter has.")] = None,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Show a configuration with every default filled in: a file's, or the running arbiter's (operators only)."""
    from horae.config import load
    from policy.text.textform import to_yaml

    data = load(config).model_dump(mode="json") if config is not None else connect(socket).config()
    if as_json:
        screen.emit_json(data)
    else:
        print(to_yaml(data), end="")


@app.command(epilog=example("horae config init --adapter slurm > config.yaml"))
def init(
    adapter: Annotated[str, typer.Option(help="The cluster's adapter: local, slurm, yarn.")] = "local",
    as_json: Json = False,
) -> None:
    """Write an example: mode `observe`, which changes nothing, and every section explained."""
    from horae.config import ClusterForm
    from horae.configured import adapter as installed

    installed(ClusterForm(adapter=adapter), "--adapter")
    text = EXAMPLE.replace("ADAPTER", adapter).replace(" OPTIONS", OPTIONS.get(adapter, " {}"))
    if as_json:
        from policy.text.textform import load

        screen.emit_json(load(text, "example.yaml").value)
    else:
        print(text, end="")


@app.command(epilog=example("horae config mode main advise"))
def mode(
    pool: Annotated[str, typer.Argument(help="The pool.")],
    to: Annotated[str, typer.Argument(help="observe, advise, order or enforce.", metavar="MODE")],
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Set how far the running arbiter goes in a pool, until it is set again. Operators only."""
    answer = connect(socket).mode(pool, to)
    if as_json:
        screen.emit_json(answer)
    else:
        print(f"pool {pool}: {visible.neutral(answer['text'])}")


OPTIONS = {
    "local": " {state: /var/lib/horae/local, nodes: auto}",
    "slurm": """
    # partitions: [gpu]            # that Horae manages; left out: all, which only observing allows
    spool: /var/spool/horae        # a folder that slurmctld's host and the nodes see
    hold: false                    # true once `horae install slurm` is done: new jobs are then held for Horae
    # ssh: horae@controller        # where Slurm's commands are, if not here""",
    "yarn": """
    resource_manager: ["http://rm1:8088"]      # web addresses, one a server
    webhdfs: ["http://nn1:9870"]               # of the NameNodes
    queue: default                             # `horae install yarn` makes one for Horae
    user: horae                                # its own name
    auth: simple                               # or kerberos, with principal and keytab""",
}

EXAMPLE = """\
# The configuration of one Horae arbiter. `horae config check FILE` reads it as the arbiter would; the reference
# pages list every key. What is left out has a default.

state_dir: /var/lib/horae          # the journal; one arbiter a folder

cluster:
  adapter: ADAPTER                 # found by name among what is installed
  options: OPTIONS

pools:                             # disjoint sets of nodes, each with a policy and a mode of its own
  - name: main
    # nodes: "gpu[01-16]"          # left out: all nodes that no other pool names
    policy: max-min                # `horae policies` lists them
    mode: observe                  # observe: reads only; advise: says what it would do; order: moves waiting jobs;
                                   # enforce: starts, stops and resizes

tenants: []                        # left out: every user is a tenant of weight 1
  # - {name: vision, weight: 2.0, users: [ann, ben], cap: 16}      # at most 16 GPUs at once

operators: [root]                  # may act on everybody's jobs

guards:                            # what holds a policy back
  min_run_s: 60.0                  # a job runs this long between two resizes
  restarts_per_hour: 6
  gain: 1.0                        # a resize must gain this many times what its restart loses

away: []                           # nodes that are to be away: nothing starts there that could not end before,
                                   # and elastic jobs leave them ahead
  # - {name: firmware, nodes: "gpu[01-04]", begins: 2026-12-01T08:00+01:00, ends: 2026-12-01T12:00+01:00}

api:
  show_others: false               # whether everybody sees everybody's commands, losses and logs
"""
