"""The options of a Slurm cluster, as the site's configuration gives them to `connect`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horae.options import typed_options
from policy.model import BadInput

TENANTS = ("account", "user", "qos")
CLIENTS = ("auto", "command", "slurmrestd", "pyslurm")
_REST_URL = re.compile(r"https?://[\w.\-\[\]:]+(?:/[\w./\-]*)?|unix:/\S+")
STOPS = ("auto", "exit86", "requeuehold")


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults are those of a site with Slurm's commands on the arbiter's host."""

    partitions: tuple[str, ...] = ()  #: managed; empty: all partitions, which only observing allows
    spool: str = "/var/spool/horae"  #: shared with slurmctld's host and, for job folders, with the nodes
    state: str = ""  #: what the adapter remembers of jobs; default: `spool`/state, on the arbiter's side
    client: str = "auto"
    rest_url: str = ""  #: slurmrestd: http://HOST:PORT, https://..., unix:/PATH
    rest_token_file: str = ""  #: its token, renewed by the site; without it one is asked of scontrol
    pyslurm: str = ""  #: the Python that has pyslurm for the commands' host
    requests_per_s: float = 50.0  #: most requests to slurmctld a second, after a burst
    path: str = ""  #: folder of Slurm's commands, when it is not on PATH
    prefix: tuple[str, ...] = ()  #: before each command: `sudo -n -u slurm`
    env: tuple[tuple[str, str], ...] = ()
    tenants: str = "account"
    stop: str = "auto"
    timeout_s: float = 30.0
    blocked_after_s: float = 5.0  #: a grant that does not run by then is taken back and reported
    keep_days: float = 30.0  #: how long the folder of a job that is over stays in the spool
    keep_gb: float = 100.0  #: 10^9 bytes in all of them; beyond that the largest go sooner
    hold: bool = True  #: the Lua module holds new jobs while our heartbeat is fresh
    ssh: str = ""  #: [user@]host[:port]: run the commands there
    ssh_key: str = ""
    ssh_known_hosts: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.env)


def parse_options(options: Mapping[str, Any], where: str = "cluster") -> Options:
    """Raises BadInput naming the option to mend."""
    values = typed_options(Options, options, where, maps=frozenset({"env"}))
    for key, choices in (("tenants", TENANTS), ("client", CLIENTS), ("stop", STOPS)):
        if values.get(key, choices[0]) not in choices:
            raise BadInput(
                f"'{values[key]}' is not known",
                where=where,
                field=key,
                value=values[key],
                remedy=f"one of {', '.join(choices)}",
            )
    if values.get("path"):
        values["path"] = values["path"].rstrip("/") + "/"
    for key in ("spool", "state"):
        if values.get(key) and not values[key].startswith("/"):
            raise BadInput("is not an absolute path", where=where, field=key, value=values[key])
    for key in ("keep_days", "keep_gb"):
        if not values.get(key, 1.0) > 0:
            raise BadInput("is not above 0", where=where, field=key, value=values[key])
    _check_clients(values, where)
    return Options(**values)


def _check_clients(values: Mapping[str, Any], where: str) -> None:
    url = values.get("rest_url", "")
    if url and not _REST_URL.fullmatch(url):
        remedy = "http://HOST:6820, https://HOST/PATH or unix:/run/slurmrestd/slurmrestd.socket"
        raise BadInput("is no address of a slurmrestd", where=where, field="rest_url", value=url, remedy=remedy)
    if values.get("client") == "slurmrestd" and not url:
        raise BadInput(
            "slurmrestd needs its address", where=where, field="client", value="slurmrestd", remedy="set rest_url"
        )
    if values.get("client") == "pyslurm" and not values.get("pyslurm"):
        remedy = "set pyslurm to the Python it is installed for, such as /opt/pyslurm/bin/python"
        raise BadInput("pyslurm needs a Python of its own", where=where, field="client", value="pyslurm", remedy=remedy)
