"""The command line: squeue and sinfo for the round's one read, one open scontrol for all writes.

scontrol reads commands from its input and answers each in 2-3 ms (a process of its own costs 10-16 ms); a
`show hostnames MARK` after each command, which needs no controller, tells where its answer ends. scontrol is started
anew after any fault and every few minutes, so that it follows slurm.conf.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from horae.port import FixConfiguration, PortError, TryLater
from slurm_plugin.clients.base import Operation
from slurm_plugin.clients.command_reading import (
    JOB_FIELDS,
    NODE_FIELDS,
    ahead_of,
    exit_codes,
    format_of,
    is_uneven,
    job_rows_of,
    node_rows_of,
    racks_of,
    records_of,
    settings_of,
    splits_of,
)  # fmt: skip
from slurm_plugin.clients.pace import Pace, site_limit
from slurm_plugin.errors import Gone, port_error
from slurm_plugin.records import Facts, JobRow, NodeRow, fold, number
from slurm_plugin.transport import Conversation, Transport
from slurm_plugin.writes import Write

_SCONTROL_AGE_S = 300.0
_TIMED_OUT = (124, 137)  #: what `timeout` says when it had to end the command
#: requests to slurmctld that a command makes, as sdiag counts them
_COST = {"squeue": 2, "sinfo": 2, "scontrol": 1, "scancel": 3}


class CommandClient:
    name = "command"

    def __init__(self, transport: Transport, path: str = "", timeout_s: float = 30.0, pace: Pace | None = None) -> None:
        self._transport, self._path, self._timeout_s = transport, path, timeout_s
        self._pace = pace or Pace()
        self._scontrol: Conversation | None = None
        self._opened_s = 0.0
        self._marks = 0
        self._lock = threading.Lock()
        self._parsed: dict[str, JobRow] = {}
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
        out = self._read("squeue", ["-h", "-a", "-r", "-t", "all", *where, "-O", format_of(JOB_FIELDS)])
        rows = job_rows_of(out, self._parsed)
        self._parsed = dict(zip(records_of(out), rows, strict=True))
        return self._with_splits(rows)

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        where = ["-p", ",".join(partitions)] if partitions else []
        return node_rows_of(self._read("sinfo", ["-h", "-N", *where, "-O", format_of(NODE_FIELDS)]))

    def facts(self) -> Facts:
        asked_s = time.time()
        text = self.ask("show config")
        ahead_s, settings = ahead_of(text, asked_s, time.time()), settings_of(text)
        partitions = re.findall(r"^PartitionName=(\S+)", self.ask("show partition"), re.MULTILINE)
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
            min_job_age_s=float(number(settings.get("MinJobAge", "300").split()[0]) or 0),
            kill_wait_s=float(number(settings.get("KillWait", "30").split()[0]) or 0),
            accounting=settings.get("AccountingStorageType", "").endswith("slurmdbd"),
            private=frozenset(filter(None, settings.get("PrivateData", "").replace("none", "").split(","))),
            racks=racks_of(topology),
            requests=self._limit(settings),
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

    def account(self) -> str:
        """Whose rights the commands have: on their host, behind their prefix."""
        return self._transport.run(["id", "-un"], self._timeout_s).out.strip()

    def ended(self, ids: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        """Last state word and exit code, from slurmdbd, of jobs that slurmctld forgot: {id: (state, code)}."""
        columns = "jobid,state,exitcode,dbindex"
        argv = ["sacct", "-n", "-P", "-X", "-D", "-S", "now-30days", "-j", ",".join(ids), "-o", columns]
        done = self._transport.run([self._path + argv[0], *argv[1:]], self._timeout_s)
        if done.rc != 0:
            raise port_error(done.err, "asking slurmdbd for jobs that slurmctld forgot")
        last: dict[str, tuple[int, str, int]] = {}
        for line in done.out.splitlines():
            job, state, code, index = (*line.split("|"), "", "", "", "")[:4]
            first, _, signal = code.partition(":")
            value = 128 + int(signal) if signal.isdigit() and int(signal) else (number(first) or 0)
            order = number(index) or 0
            if job not in last or order >= last[job][0]:
                last[job] = (order, state.split(" ")[0], value)
        return {job: (state, value) for job, (_, state, value) in last.items()}

    # --- writes ---

    def write(self, writes: Sequence[Write], doing: str) -> None:
        """scontrol commands in order, in one process; the first that fails ends it and is the error."""
        for write in writes:
            self.ask(scontrol(write), doing)

    def signal(self, slurm_id: str, name: str, doing: str) -> None:
        """A signal to the batch shell.

        With pending siblings in an array scancel delivers it, hangs, and signals whatever runs under that number
        later. So it is ended where it runs: killing what it was started through (sudo, ssh, docker) would not end it.
        """
        self._pace.spend(_COST["scancel"])
        argv = ["timeout", "-k", "1", "3", self._path + "scancel", "-b", "-s", name, slurm_id]
        try:
            done = self._transport.run(argv, timeout_s=8.0)
        except TryLater:
            return  # delivered, and repeated by the caller while nothing happens
        if done.rc not in (0, *_TIMED_OUT):
            error = port_error(done.err, doing)
            if not isinstance(error, Gone):  # it ended meanwhile: the next observation tells
                raise error

    def cancel(self, ids: Sequence[str], doing: str) -> None:
        self._pace.spend(_COST["scancel"] * len(ids))
        done = self._transport.run([self._path + "scancel", *ids], self._timeout_s)
        if done.rc != 0 and "Invalid job id" not in done.err:
            raise port_error(done.err, doing)

    def ask(self, line: str, doing: str = "") -> str:
        """One scontrol command; its output. Raises the PortError of what it says on its error output."""
        if any(char in line for char in "\n\r\0"):
            raise FixConfiguration(f"a line break in a scontrol command: {line!r}", "report this as a bug")
        with self._lock:
            out, err = self._converse(line)
        if err.strip():
            raise port_error(err, doing or f"scontrol {line}")
        return out

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    # --- how ---

    def _with_splits(self, rows: list[JobRow]) -> list[JobRow]:
        """How totals over several nodes are split is said by scontrol alone: one more read when such a job began."""
        uneven = {(row.id, row.restarts): row for row in rows if is_uneven(row)}
        if uneven.keys() - self._splits.keys():
            found = splits_of(self._read("scontrol", ["-o", "-d", "show", "job"]))
            self._splits |= {key: found.get(key[0], ()) for key in uneven}
        self._splits = {key: split for key, split in self._splits.items() if key in uneven}
        if not uneven:
            return rows
        return [replace(row, split=self._splits.get((row.id, row.restarts), ())) for row in rows]

    def _read(self, command: str, args: Sequence[str]) -> str:
        self._pace.spend(_COST[command])
        done = self._transport.run([self._path + command, *args], self._timeout_s)
        if done.rc != 0:
            raise port_error(done.err, f"reading the cluster with {command}")
        return done.out

    def _converse(self, line: str) -> tuple[str, str]:
        now = time.monotonic()
        if self._scontrol is not None and now - self._opened_s > _SCONTROL_AGE_S:
            self._hang_up()
        if self._scontrol is None:
            self._scontrol, self._opened_s = self._transport.open([self._path + "scontrol"]), now
        self._marks += 1
        self._pace.spend(_COST["scontrol"])
        mark = f"horaemark{self._marks}"
        end = re.compile(rf"^{mark}\r?$", re.MULTILINE)
        out, err, deadline = "", "", now + self._timeout_s
        try:
            self._scontrol.send(f"{line}\nshow hostnames {mark}\n")
            while not (found := end.search(out)):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TryLater(f"scontrol gave no answer for {self._timeout_s:.0f} s", retry_after_s=5.0)
                more_out, more_err = self._scontrol.receive(left)
                out, err = out + more_out, err + more_err
            with suppress(TryLater):  # what it wrote to its error output before the mark is in the pipe by now
                err += self._scontrol.receive(0.0)[1]
        except PortError:
            self._hang_up()
            raise
        return _unprompted(out[: found.start()], line), err

    def _hang_up(self) -> None:
        if self._scontrol is not None:
            self._scontrol.close()
            self._scontrol = None


def scontrol(write: Write) -> str:
    """A write as scontrol takes it."""
    if write.change is None:
        return f"{write.verb} {write.job}"
    change, words = write.change, [f"jobid={write.job}"]
    if change.start_now:
        words.append("StartTime=now")
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
    ):
        if value is not None:
            words.append(f"{name}={value}")
    return f"{write.verb} {' '.join(words)}"


def _unprompted(text: str, line: str) -> str:
    """scontrol's output without its prompts and the echo of what it was told."""
    kept = (row.replace("scontrol: ", "", 1) if row.startswith("scontrol: ") else row for row in text.splitlines())
    return "\n".join(row for row in kept if row not in {line, ""} and not row.startswith("show hostnames horaemark"))
