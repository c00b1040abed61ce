"""What Slurm hides from whoever asks, by PrivateData, and whether that is hidden from us."""

from __future__ import annotations

from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.routes import Routes
from slurm_plugin.records import Facts

#: PrivateData's words for what one user sees of another: his jobs, and whose they are
HIDING = frozenset({"jobs", "accounts", "users", "usage"})
_SEES_ALL = frozenset({"Operator", "Administrator"})


def command_of(client: Routes) -> CommandClient | None:
    return next((each for each in client.clients if isinstance(each, CommandClient)), None)


def hidden_from(command: CommandClient, facts: Facts) -> tuple[str, frozenset[str]]:
    """(our account, what of jobs and nodes is hidden from it). Raises PortError."""
    hidden = facts.private & {"jobs", "nodes"}
    if not hidden:
        return "", frozenset()
    me = command.account()
    sees = me in {"root", facts.slurm_user} or command.admin_level(me) in _SEES_ALL
    return me, frozenset() if sees else hidden
