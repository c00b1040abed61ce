"""The cluster port on Slurm: one read a round, writes in one scontrol, and the follow-ups that a start needs.

A start is `update` (shape, nodes, time left) and `release`, then `hold` as the fence once it runs; a stop is USR1
to the batch shell and exit 86, by force after the grace. What these need beyond the first write is done by
`observe`, for jobs that this arbiter granted or asked, and only while its claim stands. Observing alone writes
nothing.

Never restart on a node of the old shape within the same second: Slurm's credentials and their revocation have
stamps of one second, and the launch would be refused and the job end FAILED. Such a start waits on a timer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from horae.port import (
    BlockKind,
    Capabilities,
    FixConfiguration,
    JobId,
    JobState,
    LogChunk,
    Never,
    Observation,
    ObservedJob,
    PortError,
    TryLater,
)  # fmt: skip
from horae.spec import JobSpec
from policy.model import Allocation, Limits, Pinning
from slurm_plugin import history, reading, shapes
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.routes import Routes
from slurm_plugin.errors import Gone
from slurm_plugin.memory import Grant, Memo, Memories, Stop
from slurm_plugin.options import Options, parse_options
from slurm_plugin.records import Facts, JobRow
from slurm_plugin.spool import Account, Spool
from slurm_plugin.transport import LocalTransport, Transport
from slurm_plugin.writes import Change, Write, hold, release, requeue_hold, update

RESTART_GAP_S = 1.0
ACCOUNT_AGE_S = 5.0
REPEAT_S = 3.0  #: a start asked for again within this is the same one
#: a batch script may not have set its trap yet, nor horae-exec said that it lives
YOUNG_S = 2.0
_FACTS_AGE_S = 300.0
_SEES_ALL = frozenset({"Operator", "Administrator"})


class SlurmCluster:
    """`ClusterPort` of one Slurm. Thread-safe: one lock around what is remembered."""

    def __init__(self, options: Options, transport: Transport, client: Routes) -> None:
        self._options, self._transport, self._client = options, transport, client
        self._spool = Spool(transport.files, options.spool)
        folder = Path(options.state or f"{options.spool}/state")
        try:
            self._memories = Memories(folder)
        except OSError as error:
            raise FixConfiguration(
                f"cannot use {folder}: {error.strerror}", "give it to Horae's account, or set `state`"
            ) from error
        self._rows: dict[JobId, JobRow] = {}
        self._seen: dict[JobId, ObservedJob] = {}
        self._node_gpus: dict[str, int] = {}
        self._token: str | None = None
        self._facts: Facts | None = None
        self._facts_s = 0.0
        self._verdicts: dict[JobId, tuple[JobRow, reading.Judgement]] = {}
        self._accounts: dict[JobId, tuple[tuple[JobState, int], float, Account]] = {}
        self._timers: dict[JobId, threading.Timer] = {}
        self._awaited: frozenset[int] = frozenset()  #: jobs whose failure others wait for
        self._late: list[str] = []  #: what deferred writes said, for the next observation's notes
        self._lock = threading.RLock()

    # --- reading ---

    def facts(self) -> Facts:
        if self._facts is None or time.monotonic() - self._facts_s > _FACTS_AGE_S:
            self._facts, self._facts_s = self._client.facts(), time.monotonic()
            if self._facts.requests is not None:
                self._client.pace.bound(*self._facts.requests)
        return self._facts

    def capabilities(self) -> Capabilities:
        facts = self.facts()
        return Capabilities(
            cluster=f"slurm {facts.version} ({facts.cluster})",
            limits=Limits(equal_gpus_per_node=True, one_type_per_job=False, pinning=Pinning.EXACT),
            owns_submission=False,
            reshape_in_place=False,
            order_lever="SiteFactor" if facts.multifactor else None,
            log_live=True,
            restart_gap_s=RESTART_GAP_S,
            notes=tuple(self._notes(facts)),
        )

    def observe(self) -> Observation:
        with self._lock:
            facts = self.facts()
            partitions = self._options.partitions
            rows, node_rows = self._client.jobs(partitions), self._client.nodes(partitions)
            granted = {memo.job: memo.outstanding for memo in self._memories.all() if memo.outstanding}
            if granted and reading.between_two_reads(rows, node_rows, granted):
                rows, node_rows = self._client.jobs(partitions), self._client.nodes(partitions)
            now_s = self._now_s()
            claim = self._spool.claimed()
            notes = [*self._late, *self._memories.notes, *self._client.notes()]
            self._late.clear()
            self._memories.notes.clear()
            self._rows = {reading.port_id(row): row for row in rows}
            self._awaited = reading.awaited(rows)
            self._verdicts = {job: kept for job, kept in self._verdicts.items() if job in self._rows}
            jobs: dict[JobId, ObservedJob] = {}
            due: list[tuple[JobRow, reading.Step]] = []
            for job, row in self._rows.items():
                verdict = self._judged(job, row, facts, now_s)
                if verdict.note:
                    notes.append(verdict.note)
                if verdict.job is not None:
                    jobs[job] = self._marked(verdict.job, row, now_s)
                    if verdict.memo.grants or verdict.memo.stop or verdict.steps:
                        self._memories.put(verdict.memo)
                    else:
                        self._memories.keep(verdict.memo)
                due += [(row, step) for step in verdict.steps]
                if verdict.memo.stop is not None and verdict.memo.stop.stay:
                    due += self._let_go(job, row, verdict.memo, now_s)
            ask = self._client.ended if facts.accounting else None
            try:
                gone = history.vanished(self._memories, frozenset(self._rows), ask, now_s, self._spool.forget)
                jobs |= {job.id: job for job in gone}
            except PortError as error:
                notes.append(error.text)
            ours = frozenset(jobs)
            if held := reading.unseen(node_rows, rows, ours):  # their partition was edited away under them
                node_rows += reading.out_of_bounds(self._client.nodes(()), held)
            nodes = reading.nodes_of(node_rows, rows, ours, facts)
            self._node_gpus = {node.name: node.gpus for node in nodes}
            jobs = reading.without_promises(jobs, self._rows, nodes)
            self._seen = jobs
            if self._token is not None and claim == self._token:
                notes += self._follow_up(due)
            return Observation(now_s, nodes, tuple(jobs.values()), claim, tuple(notes))

    def _judged(self, job: JobId, row: JobRow, facts: Facts, now_s: float) -> reading.Judgement:
        """A judgement; the last one again for a job that waits and reads as it did (the bulk of a long queue)."""
        memo = self._memories.get(job)
        last = self._verdicts.get(job)
        if last is not None and last[0] is row and last[1].memo is memo:
            return last[1]
        verdict = reading.judge(row, memo, facts, self._options, now_s)
        waits = (
            verdict.job is not None and verdict.job.state is JobState.QUEUED and not verdict.steps and not verdict.note
        )
        if waits:
            self._verdicts[job] = (row, verdict)
        else:
            self._verdicts.pop(job, None)
        return verdict

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        row = self._known(job)[0]
        path = self._spool.log(job) or shapes.stdout_path(row)
        if path is None:
            return LogChunk(b"", offset)
        try:
            found = self._transport.files.stat(path)
            if found is None:
                return LogChunk(b"", offset)
            identity = f"{found.st_dev}:{found.st_ino}"
            start = 0 if offset > found.st_size else offset
            data = self._transport.files.read(path, start, limit, owner=row.uid) or b""
        except OSError as error:
            raise FixConfiguration(
                f"cannot read the log of {job}, {path}: {error.strerror or error}",
                "run the trainer under horae-exec, or open the log",
            ) from error
        if offset > found.st_size:
            identity += ":truncated"
        return LogChunk(data, start + len(data), identity, start + len(data) >= found.st_size)

    def noticed(self) -> object:
        """Follows what the Lua module and the epilog note; without the lock, so that a slow read delays nothing."""
        return self._spool.noticed()

    # --- for the doctor ---

    @property
    def client(self) -> Routes:
        return self._client

    @property
    def command(self) -> CommandClient:
        """The command line, for what only it can do."""
        return next(client for client in self._client.clients if isinstance(client, CommandClient))

    @property
    def spool(self) -> Spool:
        return self._spool

    def account(self) -> str:
        return self.command.account()

    def admin_level(self, user: str) -> str:
        return self.command.admin_level(user)

    def clock_offset_s(self) -> float:
        return self.facts().ahead_s

    # --- who we are ---

    def claim(self, token: str) -> None:
        """Raises FixConfiguration where Slurm hides jobs or nodes from us: free GPUs would be guessed."""
        if hidden := self.facts().private & {"jobs", "nodes"}:
            me = self.account()
            if me not in {"root", self.facts().slurm_user} and self.admin_level(me) not in _SEES_ALL:
                raise FixConfiguration(
                    f"PrivateData hides others' {' and '.join(sorted(hidden))} from {me}",
                    "give Horae's account AdminLevel=Operator, see `horae doctor`",
                )
        self._spool.prepare()
        self._spool.claim(token, self._now_s())
        self._token = token

    def heartbeat(self) -> None:
        if self._options.hold and self._options.partitions:
            self._spool.beat(self._now_s(), self._options.partitions)  # slurmctld's host compares it

    # --- acting ---

    def submit(self, job: JobId, spec: JobSpec) -> None:
        raise Never("on Slurm, users submit with sbatch, or `horae submit --sbatch=OPTION`; jobs then arrive held")

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        with self._lock:
            row, seen, memo = self._known(job)
            if epoch <= seen.epoch:
                return
            nodes, per_node = shapes.shape(job, allocation)
            last = memo.grant
            if seen.state.holds and not (memo.outstanding and seen.state is JobState.STARTING):
                raise TryLater(f"{job} still holds its GPUs ({seen.native})")
            if seen.state.ended:
                raise Never(f"{job} has ended: {seen.native}")
            if last and last.epoch == epoch and not last.withdrawn and (last.nodes, last.per_node) == (nodes, per_node):
                if last.restarts == row.restarts and not row.held:
                    return
            elif last and last.epoch > epoch:
                return
            grant = Grant(epoch, row.restarts, nodes, per_node, self._now_s(), before=row.reason or "")
            if wrong := shapes.impossible(nodes, per_node, self._node_gpus):
                grant = replace(grant, withdrawn=True)
                self._memories.put(replace(memo.with_grant(grant), blocked=(BlockKind.NODE.value, wrong)))
                return
            first = self.facts().multifactor
            writes = shapes.start_writes(row, memo, grant, first)
            memo = replace(memo, ordered=shapes.FIRST if first else memo.ordered)
            self._spool.grant(job, row.uid, epoch, row.restarts)
            stop = memo.stop if memo.stop and memo.stop.restarts != row.restarts else None
            self._memories.put(replace(memo.with_grant(grant), stop=stop, blocked=None, cancelled=False))
            wait_s = self._gap(memo, nodes)
            if wait_s > 0:
                self._later(job, wait_s, writes)
            else:
                self._client.write(writes, f"starting {job}")

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise Never("Slurm cannot change a running job's GPUs; stop it and start it in the new shape")

    def checkpoint_and_stop(self, job: JobId, grace_s: float) -> None:
        with self._lock:
            row, seen, memo = self._known(job)
            if not seen.state.holds or (memo.stop and memo.stop.restarts == row.restarts):
                return
            self._cancel_timer(job)
            if memo.outstanding and row.state == "PENDING":
                self._client.write((hold(row.id),), f"taking back the grant of {job}")
                # If it began to run before the hold came, the next observation asks it to leave.
                stop = Stop(self._now_s(), grace_s, row.restarts)
                self._memories.put(replace(memo.with_last(withdrawn=True, recalled=True), stop=stop))
                return
            if row.state == "COMPLETING":
                return
            now_s = self._now_s()
            stop = Stop(now_s, grace_s, row.restarts)
            self._memories.put(replace(memo, stop=stop))
            ready = row.state == "RUNNING" and row.reason != "Prolog"
            if ready:  # else the next observation asks: a signal during the prolog is lost, or kills the job
                self._ask_to_leave(row, f"stopping {job}")

    def cancel(self, job: JobId) -> None:
        with self._lock:
            self._cancel_timer(job)
            row, seen, memo = self._known(job)
            if seen.state.ended:
                return
            self._memories.put(replace(memo, cancelled=True))
            self._spool.ask_to_end(job)
            self._client.cancel([row.id], f"cancelling {job}")

    def release(self, job: JobId) -> None:
        with self._lock:
            try:
                row, seen, memo = self._known(job)
            except Gone:
                return
            self._cancel_timer(job)
            if not seen.state.ended:
                writes = [release(row.id)]
                if row.state in {"PENDING", "SPECIAL_EXIT"}:
                    writes.insert(0, shapes.original(row))
                if memo.ordered:
                    writes.insert(0, update(row.id, Change(site_factor=0)))
                self._client.write(writes, f"handing {job} back to Slurm")
            self._memories.put(replace(memo, released=True))
            self._spool.forget(job)

    def set_order(self, jobs: Sequence[JobId]) -> None:
        if not self.facts().multifactor:
            raise Never(
                "this Slurm has no lever for the order of pending jobs (PriorityType is not priority/multifactor)"
            )
        with self._lock:
            pending = [job for job in jobs if job in self._rows and self._rows[job].state == "PENDING"]
            own = [self._rows[job].priority - self._memories.get(job).ordered for job in pending]
            # Each place outweighs all that priorities differ by; a power of two, so that it seldom changes.
            step = 1 << (max(own, default=0) - min(own, default=0) + 10).bit_length()
            writes, memos = [], []
            for rank, job in enumerate(reversed(pending), start=1):
                memo, factor = self._memories.get(job), rank * step
                if memo.ordered != factor:
                    writes.append(update(self._rows[job].id, Change(site_factor=factor)))
                    memos.append(replace(memo, ordered=factor))
            self._client.write(writes, "ordering the pending jobs")
            for memo in memos:
                self._memories.put(memo)

    def set_reason(self, job: JobId, text: str) -> None:
        self._spool.reason(job, text)

    def close(self) -> None:
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._client.close()
            self._transport.close()

    # --- how ---

    def _now_s(self) -> float:
        """Slurm's time, with which its stamps are compared: ours may be hours away where we come in by SSH or REST."""
        return time.time() + (self._facts.ahead_s if self._facts else 0.0)

    def _known(self, job: JobId) -> tuple[JobRow, ObservedJob, Memo]:
        """The job as last observed; one fresh read when it was never seen. Raises Never when there is none."""
        if job not in self._seen or job not in self._rows:
            self.observe()
        if job not in self._seen or job not in self._rows:
            raise Gone(f"Slurm has no job {job} in the managed partitions")
        return self._rows[job], self._seen[job], self._memories.get(job)

    def _gap(self, memo: Memo, nodes: tuple[str, ...]) -> float:
        if memo.left is None or not set(memo.left[0]) & set(nodes):
            return 0.0
        return max(memo.left[1] + RESTART_GAP_S - self._now_s(), 0.0)

    def _later(self, job: JobId, wait_s: float, writes: tuple[Write, ...]) -> None:
        self._cancel_timer(job)
        timer = threading.Timer(wait_s, self._deferred, (job, writes))
        timer.daemon = True
        self._timers[job] = timer
        timer.start()

    def _deferred(self, job: JobId, writes: tuple[Write, ...]) -> None:
        with self._lock:
            if self._timers.pop(job, None) is None:
                return
            if self._spool.claimed() != self._token:
                self._late.append(f"{job}: not started, another arbiter claimed the cluster")
                return
            try:
                self._client.write(writes, f"starting {job}")
            except PortError as error:
                self._late.append(f"{job}: {error.text}")
                self._memories.put(self._memories.get(job).with_last(withdrawn=True))

    def _cancel_timer(self, job: JobId) -> None:
        timer = self._timers.pop(job, None)
        if timer is not None:
            timer.cancel()

    def _ask_to_leave(self, row: JobRow, doing: str) -> None:
        """Stop file for those who poll it; the signal for all but supervisors that are not the batch shell.

        A signal to a shell without a trap for it would end the job. A start that is too young to have a supervisor
        and too young to have a trap is left for the next observation.
        """
        job = reading.port_id(row)
        memo = self._memories.get(job)
        stop, grant = memo.stop, memo.of(row.restarts)
        if stop is None:
            return
        now_s = self._now_s()
        epoch = grant.epoch if grant else row.restarts + 1
        stay = self._stays(row)
        self._spool.ask_to_stop(job, epoch, stop.grace_s, stop.at_s, stay)
        account = self._spool.account(job, row.uid)
        young = row.start_s is not None and now_s - row.start_s < YOUNG_S
        if account.epoch != epoch and young and now_s < stop.at_s + stop.grace_s:
            return
        self._memories.put(replace(memo, stop=replace(stop, signalled_s=now_s, stay=stay)))
        if self._options.stop == "requeuehold" and account.epoch != epoch:  # a script of its own: TERM is its request
            self._client.write((requeue_hold(row.id),), doing)
        elif account.epoch != epoch or account.direct:
            with suppress(TryLater):  # the stop file is out, and the signal is repeated while nothing happens
                self._client.signal(row.id, "USR1", doing)

    def _stays(self, row: JobRow) -> bool:
        """Whether its supervisor is to stay after the checkpoint: where exit code 86 would look like a failure."""
        if self._options.stop != "auto":
            return self._options.stop == "requeuehold"
        held = self._facts is None or reading.CHECKPOINTED in self._facts.exit_hold
        return not held or reading.is_awaited(row, self._awaited)

    def _let_go(self, job: JobId, row: JobRow, memo: Memo, now_s: float) -> list[tuple[JobRow, reading.Step]]:
        """The requeue of a job that stays, once its supervisor says that it has checkpointed."""
        account, grant = self._spool.account(job, row.uid), memo.of(row.restarts)
        epoch = grant.epoch if grant else row.restarts + 1
        if (account.ended, account.exit_code) != (epoch, reading.CHECKPOINTED):
            return []
        found = reading.let_go(row, memo, now_s)
        if found is None:
            return []
        self._memories.put(found[0])
        return [(row, found[1])]

    def _follow_up(self, due: Sequence[tuple[JobRow, reading.Step]]) -> list[str]:
        """Take the steps; an error of one is a note and hinders no other, for the next round sees it again."""
        notes = []
        for row, step in due:
            if reading.port_id(row) in self._timers:
                continue
            try:
                if step.ask:
                    self._ask_to_leave(row, f"{row.id}: {step.why}")
                else:
                    self._client.write(step.writes, f"{row.id}: {step.why}")
            except PortError as error:
                notes.append(error.text)
        return notes

    def _marked(self, job: ObservedJob, row: JobRow, now_s: float) -> ObservedJob:
        """With what the job's supervisor says. While it runs that is read now and then, when it stops at once."""
        if job.state in {JobState.QUEUED, JobState.STARTING} and job.epoch == 0:
            return job
        key = (job.state, job.epoch)
        kept = self._accounts.get(job.id)
        if kept is None or kept[0] != key or (job.state.holds and now_s - kept[1] > ACCOUNT_AGE_S):
            account = self._spool.account(job.id, row.uid)
            if job.state is JobState.LOST and (newest := self._spool.newest_checkpoint(job.id, row.uid)):
                account = replace(account, checkpoint=newest)
            kept = (key, now_s, account)
            self._accounts[job.id] = kept
        account = kept[2]
        code = account.exit_code if job.exit_code is not None and account.ended == job.epoch else job.exit_code
        return replace(job, checkpoint=account.checkpoint, exit_code=code)

    def _notes(self, facts: Facts) -> list[str]:
        notes = []
        if reading.CHECKPOINTED not in facts.exit_hold:
            notes.append(
                "no RequeueExitHold=86: a checkpointed job shows as FAILED for a moment; afterok dependents die"
            )
        if self._options.partitions and (missing := set(self._options.partitions) - set(facts.partitions)):
            notes.append(f"no such partition: {', '.join(sorted(missing))}")
        if facts.private & {"jobs", "nodes"}:
            notes.append("PrivateData hides jobs or nodes from all but Operators")
        return notes


def connect(options: Mapping[str, Any]) -> SlurmCluster:
    """Entry point `horae.clusters: slurm`. Raises BadInput for options, PortError when Slurm cannot be used so."""
    checked = parse_options(options, "cluster.slurm")
    transport: Transport
    if checked.ssh:
        from slurm_plugin.ssh import SshTransport

        transport = SshTransport(checked)
    else:
        transport = LocalTransport(checked.prefix, checked.environment)
    return SlurmCluster(checked, transport, choose(checked, transport))
