"""The command line: squeue and sinfo for the round's one read, one open scontrol (`scontrol.py`) for all writes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from horae.port import PortError, TryLater
from slurm_plugin.clients.base import Operation
from slurm_plugin.clients.command_reading import (
    ENDED_FIELDS,
    JOB_FIELDS,
    NODE_FIELDS,
    Read,
    ahead_of,
    default_cpus,
    ends_of,
    exit_codes,
    is_uneven,
    job_rows_of,
    most_of,
    node_rows_of,
    nodes_alone,
    partition_qos,
    racks_of,
    seconds_of,
    settings_of,
    split_of,
)  # fmt: skip
from slurm_plugin.clients.pace import Pace, site_limit
from slurm_plugin.clients.scontrol import Scontrol
from slurm_plugin.clients.sealed import PLAIN, VARIABLE, Seal
from slurm_plugin.errors import ControllerAway, Gone, is_refusal, port_error
from slurm_plugin.files.transport import Transport
from slurm_plugin.records import End, Facts, JobRow, NodeRow, fold
from slurm_plugin.writes import Write

#: writes said to scontrol, and jobs named to scancel, before answers are waited for
_TOGETHER = 32
_NAMED = 2000  #: jobs named to one squeue: a word of a command line has its longest length
#: for so long an answer shows that slurmctld answers
_FRESH_S = 1.0
#: how long scancel may take: for a task of an array, after which it may hang; else on a busy host, where a signal that
#: was cut off before it went out would be repeated only after a good part of the grace
_HANGS_S, _SIGNAL_S = 3, 10
_TIMED_OUT = (124, 137)  #: what `timeout` says when it had to end the command
#: jobs in a look whose split is asked for; the others' is taken as even until the next one
_SPLITS = 16
_DATABASE_S = 5.0  #: how long slurmdbd may take to tell of QOS
#: requests to slurmctld that a command makes, as sdiag counts them
_COST = {"squeue": 2, "sinfo": 2, "scontrol": 1, "scancel": 3}


class CommandClient:
    name = "command"

    def __init__(self, transport: Transport, path: str = "", timeout_s: float = 30.0, pace: Pace | None = None) -> None:
        self._transport, self._path, self._timeout_s = transport, path, timeout_s
        self._pace = pace or Pace()
        self._scontrol = Scontrol(transport, path + "scontrol", timeout_s)
        self._parsed: Read = {}
        self._answered_s = -math.inf  #: when many commands were last answered
        self.odd: list[str] = []
        self._splits: dict[tuple[str, int], tuple[tuple[str, int], ...]] = {}

    def lacks(self, operation: Operation) -> str:
        return ""

    def fits(self, write: Write) -> bool:
        return True

    def describe(self) -> str:
        done = self._transport.run([self._path + "scontrol", "--version"], self._timeout_s)
        return f"{done.out.strip() or done.err.strip()} on {self._transport.where}"

    # --- reads ---

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]:
        """Every job of `partitions`, each pending array task on its own, finished ones while Slurm knows them."""
        where = ["-p", ",".join(partitions)] if partitions else []
        seal = Seal.fresh()
        out = self._read("squeue", ["-a", "-r", "-t", "all", *where], {VARIABLE: seal.format(JOB_FIELDS)})
        self._parsed = job_rows_of(out, seal, self._parsed, self.odd)
        return self._with_splits(list(self._parsed.values()))

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        """By one squeue: for several it asks for all jobs, which costs slurmctld less than a few questions do."""
        found: dict[str, JobRow] = {}
        for at in range(0, len(ids), _NAMED):
            seal = Seal.fresh()
            args = ["-a", "-r", "-t", "all", "-j", ",".join(ids[at : at + _NAMED])]
            try:
                out = self._read("squeue", args, {VARIABLE: seal.format(JOB_FIELDS)})
            except Gone:
                continue
            found |= {row.id: row for row in job_rows_of(out, seal, {}, self.odd).values()}
        return found

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        where = ["-p", ",".join(partitions)] if partitions else []
        return node_rows_of(self._read("sinfo", ["-N", *where, "-O", PLAIN.format(NODE_FIELDS)]))

    def facts(self) -> Facts:
        asked_s = time.time()
        text = self.ask("show config")
        ahead_s, settings = ahead_of(text, asked_s, time.time()), settings_of(text)
        shown = self.ask("show partition")
        partitions = re.findall(r"^PartitionName=(\S+)", shown, re.MULTILINE)
        try:
            topology = self.ask("show topology")
        except PortError:
            topology = ""  # "No topology information available" is the answer of a flat site
        return Facts(
            version=settings.get("SLURM_VERSION", "0.0"),
            cluster=settings.get("ClusterName", "?"),
            partitions=tuple(partitions),
            select=settings.get("SelectTypeParameters", ""),
            priority_type=settings.get("PriorityType", ""),
            exit_hold=frozenset(exit_codes(settings.get("RequeueExitHold", ""))),
            min_job_age_s=seconds_of(settings, "MinJobAge", 300.0),
            resume_s=seconds_of(settings, "ResumeTimeout", 0.0),
            kill_wait_s=seconds_of(settings, "KillWait", 30.0),
            accounting=settings.get("AccountingStorageType", "").endswith("slurmdbd"),
            private=frozenset(filter(None, settings.get("PrivateData", "").replace("none", "").split(","))),
            racks=racks_of(topology),
            requests=self._limit(settings),
            default_cpus=default_cpus(text, shown),
            enforced=frozenset(settings.get("AccountingStorageEnforce", "").lower().split(",")),
            partition_qos=partition_qos(shown),
            most_nodes=most_of("MaxNodes", shown),
            most_cpus=most_of("MaxCPUsPerNode", shown),
            alone=nodes_alone(shown),
            slurm_user=settings.get("SlurmUser", "").partition("(")[0],
            ahead_s=ahead_s,
        )

    def _limit(self, settings: Mapping[str, str]) -> tuple[float, float] | None:
        limit = site_limit(settings.get("SlurmctldParameters", ""))
        exempt = {"root", settings.get("SlurmUser", "").partition("(")[0]}
        return None if limit is None or self.account() in exempt else limit

    def admin_level(self, user: str) -> str:
        """A user's AdminLevel as slurmctld has it now; empty where it knows none."""
        text = self.ask(f"show assoc_mgr users={user} flags=users")
        found = re.search(rf"UserName={re.escape(user)}\(\d+\).*?AdminLevel=(\w+)", text, re.DOTALL)
        return found.group(1) if found else ""

    def licences(self) -> str:
        """Licences, with how many there are and are in use, in scontrol's words."""
        return self.ask("show licenses", "reading licences")

    def limits(self) -> str:
        """Limits of QOS and associations with what is used of them, in scontrol's words."""
        return self.ask("show assoc_mgr flags=qos,assoc", "reading the site's limits")

    def qos_rules(self) -> str:
        """Flags and factors of all QOS, as slurmdbd has them: slurmctld shows them to nobody. A slurmdbd that is away
        is not waited for: sacctmgr itself would for 30 s and more."""
        argv = ["sacctmgr", "-nP", "show", "qos", "format=name,flags,limitfactor"]
        done = self._transport.run([self._path + argv[0], *argv[1:]], min(self._timeout_s, _DATABASE_S))
        if done.rc != 0:
            raise port_error(done.err, "asking slurmdbd for the flags of QOS")
        return done.out

    def reservations(self) -> str:
        """Of the whole cluster, in scontrol's words."""
        return self.ask("show reservation", "reading reservations")

    def dependencies(self) -> list[str]:
        """What jobs of all partitions wait for."""
        return self._read("squeue", ["-a", "-h", "-t", "PD", "-o", "%E"]).splitlines()

    def account(self) -> str:
        """Whose rights the commands have: on their host, behind their prefix."""
        return self._transport.run(["id", "-un"], self._timeout_s).out.strip()

    def ended(self, ids: Sequence[str]) -> Mapping[str, End]:
        columns = ",".join(ENDED_FIELDS)
        argv = ["sacct", "-n", "-P", "-X", "-D", "-S", "now-30days", "-j", ",".join(ids), "-o", columns]
        done = self._transport.run([self._path + argv[0], *argv[1:]], self._timeout_s)
        if done.rc != 0:
            raise port_error(done.err, "asking slurmdbd for jobs that slurmctld forgot")
        return ends_of(done.out)

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        """What slurmctld has of each job, in scontrol's words; empty where it says that there is none."""
        found = {}
        for each in ids:
            try:
                text = self.ask(f"show job {each}", f"asking whether there is a job {each}")
            except Gone:
                found[each] = ""
                continue
            if not text.startswith("JobId="):
                raise TryLater(f"scontrol did not answer whether there is a job {each}")
            found[each] = text
        return found

    # --- writes ---

    def write(self, writes: Sequence[Write], doing: str) -> None:
        """scontrol commands in order, in one process; the first that fails ends it and is the error."""
        for write in writes:
            self.ask(scontrol(write), doing)

    def write_each(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        """Many commands said before their answers are waited for. The first goes alone, unless slurmctld has just
        answered such: it shows whether it does; while it is away no more are said."""
        errors: list[PortError | None] = []
        alone = int(time.monotonic() - self._answered_s > _FRESH_S)
        for some in (writes[:alone], *(writes[at : at + _TOGETHER] for at in range(alone, len(writes), _TOGETHER))):
            self._pace.spend(_COST["scontrol"] * len(some))
            answers = self._scontrol.ask_each([scontrol(write) for write, _ in some])
            errors += [_error(answer, doing) for answer, (_, doing) in zip(answers, some, strict=True)]
            away = next((error for error in errors if isinstance(error, ControllerAway)), None)
            if away is not None:
                self._answered_s = -math.inf
                if len(errors) == 1:
                    raise away
                return [*errors, *[away] * (len(writes) - len(errors))]
        self._answered_s = time.monotonic()
        return errors

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        """Tasks of arrays one by one, all others by one command."""
        plain = [each for each in ids if "_" not in each]
        groups = [plain[at : at + _TOGETHER] for at in range(0, len(plain), _TOGETHER)]
        errors: dict[str, PortError] = {}
        for group in (*groups, *([each] for each in ids if "_" in each)):
            errors |= self._signal(group, name, doing)
        return errors

    def _signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        """With pending siblings in an array scancel delivers it, hangs, and signals whatever runs under that number
        later. So it is ended where it runs: killing what it was started through (sudo, ssh, docker) would not end it.
        """
        self._pace.spend(_COST["scancel"] * len(ids))
        limit_s = (_HANGS_S if "_" in ids[0] else _SIGNAL_S) + len(ids) // 8  # it signals ten at a time
        argv = ["timeout", "-k", "1", str(limit_s), self._path + "scancel", "-b", "-s", name, *ids]
        try:
            done = self._transport.run(argv, timeout_s=limit_s + 5.0)
        except TryLater:
            return {}  # delivered, and repeated by the caller while nothing happens
        if done.rc in (0, *_TIMED_OUT):
            return {}
        return _refusals(done.err, ids, doing)

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        errors: dict[str, PortError] = {}
        for at in range(0, len(ids), _TOGETHER):
            some = ids[at : at + _TOGETHER]
            self._pace.spend(len(some))  # one each: unlike for a signal, nothing is looked up
            done = self._transport.run([self._path + "scancel", *some], self._timeout_s)
            refused = _refusals(done.err, some, doing) if done.rc != 0 else {}
            away = next((error for error in refused.values() if isinstance(error, ControllerAway)), None)
            if away is not None:
                if at == 0:
                    raise away
                return errors | dict.fromkeys(ids[at:], away)
            errors |= refused
        return errors

    def ask(self, line: str, doing: str = "") -> str:
        """One scontrol command; its output. Raises the PortError of what it says on its error output."""
        self._pace.spend(_COST["scontrol"])
        out, err = self._scontrol.ask(line)
        if is_refusal(err):
            raise port_error(err, doing or f"scontrol {line}")
        return out

    def close(self) -> None:
        self._scontrol.close()

    # --- how ---

    def _with_splits(self, rows: list[JobRow]) -> list[JobRow]:
        """How totals over several nodes are split is said by scontrol alone: one more read of such a job when it
        began, of that job alone, for its user's words stand in the answer."""
        uneven = {(row.id, row.restarts): row for row in rows if is_uneven(row)}
        for key in sorted(uneven.keys() - self._splits.keys())[:_SPLITS]:
            try:
                text = self._read("scontrol", ["-o", "-d", "show", "job", key[0]])
            except Gone:
                text = ""
            self._splits[key] = split_of(text, uneven[key])
        self._splits = {key: split for key, split in self._splits.items() if key in uneven}
        if not uneven:
            return rows
        return [replace(row, split=self._splits.get((row.id, row.restarts), ())) for row in rows]

    def _read(self, command: str, args: Sequence[str], env: Mapping[str, str] = MappingProxyType({})) -> str:
        self._pace.spend(_COST[command])
        done = self._transport.run([self._path + command, *args], self._timeout_s, env=env)
        if done.rc != 0:
            raise port_error(done.err, f"reading the cluster with {command}")
        return done.out


def _error(answer: str | TryLater, doing: str) -> PortError | None:
    if isinstance(answer, TryLater):
        return TryLater(f"{doing}: {answer.text}", answer.retry_after_s)
    return port_error(answer, doing) if is_refusal(answer) else None


def _refusals(text: str, ids: Sequence[str], doing: str) -> dict[str, PortError]:
    """What scancel said about each job. A line that names none of them is about all; who is gone is no refusal: the
    next observation tells."""
    errors: dict[str, PortError] = {}
    lines = text.splitlines() or [""]
    for line in lines:
        named = set(re.findall(r"\d+(?:_\d+)?", line)).intersection(ids)
        error = port_error(line, doing)
        if not isinstance(error, Gone):
            errors |= dict.fromkeys(named or ids, error)
    return errors


def scontrol(write: Write) -> str:
    """A write as scontrol takes it."""
    if write.change is None:
        return f"{write.verb} {write.job}"
    change, words = write.change, [f"jobid={write.job}"]
    if change.start_now:
        words.append("StartTime=now")
    elif change.start_s is not None:
        words.append(f"StartTime=uts{int(change.start_s)}")
    if change.nodes is not None:
        words.append(f"NumNodes={change.nodes}-{change.nodes}")
    for name, value in (
        ("NumTasks", change.tasks),
        ("CpusPerTask", change.cpus_per_task),
        ("NumCPUs", change.cpus),
        ("ReqNodeList", None if change.node_list is None else fold(change.node_list) if change.node_list else ""),
        ("Gres", None if change.gpus_per_node is None else f"gpu:{change.gpus_per_node}"),
        ("MinMemoryNode", change.memory_mb),
        ("TimeLimit", change.limit_min),
        ("SiteFactor", change.site_factor),
        ("Partition", None if change.partitions is None else ",".join(change.partitions)),
        ("MailType", None if change.mail is None else ",".join(change.mail) or "NONE"),
    ):
        if value is not None:
            words.append(f"{name}={value}")
    return f"{write.verb} {' '.join(words)}"
