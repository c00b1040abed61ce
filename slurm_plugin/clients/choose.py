"""`client:` of the configuration -> clients, and which goes first for which operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from slurm_plugin.clients import versions
from slurm_plugin.clients.base import Client, Operation
from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.command_reading import settings_of
from slurm_plugin.clients.pace import DEFAULT_BURST, DEFAULT_PER_S, Pace
from slurm_plugin.clients.pyslurm import PyslurmClient
from slurm_plugin.clients.rest import RestClient
from slurm_plugin.clients.routes import Routes
from slurm_plugin.clients.tokens import FileTokens, NoToken, ScontrolTokens, Tokens
from slurm_plugin.files.transport import Transport
from slurm_plugin.options import Options


def choose(options: Options, transport: Transport) -> Routes:
    """All clients that are configured. `auto` takes the cheapest for each operation, a named one goes first for all."""
    pace = Pace(options.requests_per_s, DEFAULT_BURST * options.requests_per_s / DEFAULT_PER_S)
    command = CommandClient(transport, options.path, options.timeout_s, pace)
    clients: list[Client] = [command]
    if options.rest_url and options.client in {"auto", "slurmrestd"}:
        clients.append(RestClient(options.rest_url, tokens(options, command), options.timeout_s, pace))
    if options.pyslurm and options.client in {"auto", "pyslurm"}:
        counted = cache(lambda: "gres/gpu" in settings_of(command.ask("show config")).get("AccountingStorageTRES", ""))
        clients.append(PyslurmClient(transport, options.pyslurm, options.timeout_s, pace, counted))
    order: Mapping[Operation, Sequence[str]] = versions.CHEAPEST
    if options.client != "auto":
        order = dict.fromkeys(Operation, (options.client,))
    return Routes(clients, pace, order)


def tokens(options: Options, command: CommandClient) -> Tokens:
    if options.rest_token_file:
        return FileTokens(options.rest_token_file)
    if options.rest_url.startswith("unix:"):
        return NoToken()
    return ScontrolTokens(command.ask)
