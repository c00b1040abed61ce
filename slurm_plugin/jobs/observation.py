"""The last look at Slurm: its rows, what they mean to the arbiter, and what is due about them. Writes nothing there.

A job that waits and reads as it did is not judged again (the bulk of a long queue); what supervisors say of their
jobs is read at once when a job stops, and now and then while it runs.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from horae.port import Absence, JobId, JobState, ObservedJob, PortError, TryLater
from horae.untrusted import printable
from policy.model import Health, Node, Quota
from slurm_plugin import reservations
from slurm_plugin.clients.routes import Routes
from slurm_plugin.comment import tag_text
from slurm_plugin.errors import Gone
from slurm_plugin.files.spool import Account, Spool
from slurm_plugin.jobs import holdings, limits, quotas, state_machine
from slurm_plugin.jobs.history import Absent, Sources
from slurm_plugin.jobs.quotas import Quotas
from slurm_plugin.jobs.record import Mark, Memo, Memories
from slurm_plugin.jobs.specification import keeps_shape, port_id, requested, tag_of
from slurm_plugin.jobs.waiting import (
    Arrivals,
    awaited,
    came_to,
    is_beside,
    is_ours,
    numbers,
    one_by_one,
    relisted,
    restarts_itself,
    waits_for_us,
)
from slurm_plugin.options import Options
from slurm_plugin.records import Facts, JobRow, NodeRow
from slurm_plugin.rights import command_of, hidden_from

ACCOUNT_AGE_S = 5.0
_FACTS_AGE_S = 300.0
_LIMITS_AGE_S = 30.0
_AWAY_AGE_S = 60.0
_MOST_WORDS = 500  #: about nodes by name that jobs are planned with
_MOST_ARRAYS = 32  #: that are asked about in one look
_ARRAY_AGE_S = 2.0  #: a request for each: of many arrays what was told is believed for longer

#: AccountingStorageEnforce's words under which limits bind
_ENFORCING = frozenset({"limits", "safe", "all"})


@dataclass(frozen=True, slots=True)
class Known:
    """A job as it was last seen."""

    row: JobRow
    seen: ObservedJob
    memo: Memo


@dataclass(slots=True)
class Look:
    now_s: float
    nodes: tuple[Node, ...] = ()
    quotas: tuple[Quota, ...] = ()
    away: tuple[Absence, ...] = ()
    notes: list[str] = field(default_factory=list)
    due: list[tuple[JobRow, state_machine.Step]] = field(default_factory=list)
    #: jobs whose supervisors stay after the checkpoint until they are requeued
    staying: list[tuple[JobRow, Memo]] = field(default_factory=list)


class Observer:
    def __init__(self, options: Options, client: Routes, spool: Spool, memories: Memories) -> None:
        self._options, self._client, self._spool, self._memories = options, client, spool, memories
        self.rows: dict[JobId, JobRow] = {}
        self.jobs: dict[JobId, ObservedJob] = {}
        self.node_gpus: dict[str, int] = {}
        self.woke_s: dict[str, float] = {}  #: nodes that were down, and when they were first seen to be back
        self._down: frozenset[str] = frozenset()
        self.unregistered_s: dict[str, float] = {}  #: nodes of which slurmctld knows nothing yet, since when they are
        self.unoffered: dict[JobId, JobRow] = {}  #: that wait for another job or for a time, and are not shown
        #: that are Slurm's own now, though they wait for us, and why
        self.moved: dict[JobId, tuple[JobRow, str]] = {}
        self._absent = Absent(memories)
        self._arrivals = Arrivals()
        self._quotas = Quotas()
        self._limits_s = -_LIMITS_AGE_S
        self._rules_s = -math.inf  #: when slurmdbd was asked how QOS go with other limits
        self._limited = set[tuple[str, str | None, str | None, str]]()  #: whose limits were told when they were read
        self._throttles = dict[str, int | None]()
        self._throttles_s = -_ARRAY_AGE_S * _MOST_ARRAYS
        self.away = tuple[Absence, ...]()  #: what the site has reserved for maintenance
        self._away_s = -_AWAY_AGE_S
        self._facts: Facts | None = None
        self._facts_s = 0.0
        self._untagged = set[str]()  #: that wait here, and were not held at their submission
        self._bare: dict[str, str] = {}  #: by numbers, what is told of jobs whose marks were written over
        self.tries: dict[JobId, int] = {}  #: how often Slurm did not start a job of a shape of its own, or one like it
        self.in_charge = False  #: whether it is for an arbiter, which would do something about them
        self._swept_s = -_FACTS_AGE_S  #: when jobs of ours were last looked for in all partitions
        self._verdicts: dict[JobId, tuple[JobRow, state_machine.Judgement]] = {}
        self._accounts: dict[JobId, tuple[tuple[JobState, int], float, Account]] = {}

    def facts(self) -> Facts:
        if self._facts is None or time.monotonic() - self._facts_s > _FACTS_AGE_S:
            self._facts, self._facts_s = self._client.facts(), time.monotonic()
            if self._facts.requests is not None:
                self._client.pace.bound(*self._facts.requests)
        return self._facts

    def now_s(self) -> float:
        """Slurm's time, with which its stamps are compared: ours may be hours away where we come in by SSH or REST."""
        return time.time() + (self._facts.ahead_s if self._facts else 0.0)

    def holds_exit_code(self) -> bool:
        """Whether Slurm itself holds a job that left with 86; as long as that is not known, it is taken to."""
        return self._facts is None or state_machine.CHECKPOINTED in self._facts.exit_hold

    def known(self, job: JobId) -> Known | None:
        if job not in self.jobs or job not in self.rows:
            return None
        return Known(self.rows[job], self.jobs[job], self._memories.get(job))

    def awaited(self) -> frozenset[int]:
        """Jobs whose failure others wait for, in whatever partition those are. Raises PortError."""
        command = command_of(self._client)
        if command is not None:
            return awaited(command.dependencies())
        return awaited(str(row.dependency) for row in self.rows.values())

    def must_know(self, job: JobId) -> Known:
        """Raises Gone."""
        known = self.known(job)
        if known is None:
            raise Gone(f"Slurm has no job {job} in the managed partitions")
        return known

    def look(self, waits: Callable[[JobId], bool] = lambda job: False) -> Look:
        """One read of jobs and one of nodes. `waits`: whether the start of a job is granted and not written yet.
        Raises PortError."""
        facts = self.facts()
        rows, node_rows = self._read()
        granted = {memo.job: memo.outstanding for memo in self._memories.all() if memo.outstanding}
        if granted and holdings.between_two_reads(rows, node_rows, granted):
            rows, node_rows = self._read()
        look = Look(self.now_s())
        self._find_moved(rows)
        before = self.rows
        self.rows = rows
        self._arrivals.look(rows)
        self._verdicts = {job: kept for job, kept in self._verdicts.items() if job in self.rows}
        jobs: dict[JobId, ObservedJob] = {}
        down = self._watched(node_rows, look.now_s)
        self.unoffered = {}
        look.notes += [*self._unseen(), *self._bare.values()]
        for job, row in self.rows.items():
            if job in self.moved and not restarts_itself(row):
                continue  # what is due about one that waits for us is not due any more
            if waits(job):
                self._memories.granted_at(job, look.now_s)  # Slurm cannot have followed it: it is as old as now
            try:
                verdict = self._judged(job, row, facts, look.now_s)
            except (ValueError, ArithmeticError, RecursionError) as error:  # whatever it says: it costs this job alone
                look.notes.append(f"{row.id} cannot be understood, and is left as it is: {printable(str(error))}")
                jobs |= {job: seen} if (seen := self.jobs.get(job)) is not None else {}
                continue
            if (shown := self._taken(job, row, verdict, down, look)) is not None:
                jobs[job] = shown
        jobs |= self._absent_ones(before, facts, look)
        aside, self.tries = one_by_one(jobs, rows, self._memories.get, look.now_s)
        jobs |= {job: replace(jobs[job], blocked=blocked) for job, blocked in aside.items()}
        shapes = {job.spec.shape: None for job in jobs.values() if job.spec is not None and job.spec.shape is not None}
        words = tuple(dict.fromkeys(word for shape in shapes for word in shape.features if " " in word))[:_MOST_WORDS]
        self._find_beyond(jobs, node_rows, facts, words)
        ours = frozenset(jobs)
        if held := holdings.unseen(node_rows, self.rows, ours):  # their partition was edited away under them
            node_rows += holdings.out_of_bounds(self._client.nodes(()), held)
        look.nodes = holdings.nodes_of(node_rows, self.rows, ours, facts, words, self._options.partitions)
        self.node_gpus = {node.name: node.gpus for node in look.nodes}
        self.jobs = holdings.within_nodes(jobs, self.rows, look.nodes)
        if facts.enforced & _ENFORCING:
            look.quotas = self._limits(facts, look)
        look.quotas += quotas.of_arrays(self.jobs, self.rows, self._throttled(look)) + self._licences(look)
        look.away = self._maintenance(look)
        return look

    def _watched(self, rows: Sequence[NodeRow], now_s: float) -> frozenset[str]:
        """The nodes that are down; and what is remembered of those that have just come back or are about to."""
        down = frozenset(at.name for at in rows if holdings.health(at.state) is Health.DOWN)
        self.woke_s |= dict.fromkeys(self._down - down, now_s)
        self._down = down
        unregistered = holdings.unregistered(rows)
        self.unregistered_s = {node: self.unregistered_s.get(node, now_s) for node in unregistered}
        return down

    def _taken(
        self, job: JobId, row: JobRow, verdict: state_machine.Judgement, down: Collection[str], look: Look
    ) -> ObservedJob | None:
        """What is remembered and due after a judgement; the job as it is shown."""
        shown = verdict.job
        if verdict.note:
            look.notes.append(verdict.note)
        if shown is None and waits_for_us(row, verdict.memo, self._options):
            self.unoffered[job] = row
        if shown is not None and shown.state is JobState.LOST:
            memo = state_machine.told_lost(row, verdict.memo, down)
            why = f"{shown.native}: {memo.lost[1]}" if memo.lost else shown.native
            verdict, shown = replace(verdict, memo=memo), replace(shown, native=why)
        if shown is not None:
            shown = self._marked(shown, row, look.now_s)
        if verdict.memo.lasts or verdict.steps:  # of one that is not offered too: who held it
            self._memories.put(verdict.memo)
        elif shown is not None:
            self._memories.keep(verdict.memo)
        look.due += [(row, step) for step in verdict.steps]
        if verdict.memo.stop is not None and verdict.memo.stop.stay:
            look.staying.append((row, verdict.memo))
        return shown

    def _unseen(self) -> list[str]:
        """Said once of jobs that wait here for GPUs and that the module did not take: nobody but Slurm orders them."""
        waiting = {
            row.id
            for row in self.rows.values()
            if self._options.hold and row.state == "PENDING" and tag_of(row) is None and requested(row, None)
        }
        fresh = sorted(waiting - self._untagged, key=numbers)
        self._untagged = waiting
        if not fresh:
            return []
        more = len(fresh) - 5
        who = ", ".join(fresh[:5]) + (f" and {more} more" if more > 0 else "")
        return [
            f"{who}: Slurm's own, and started past all who wait: moved here by an administrator, submitted while no "
            "arbiter lived, or in a reservation"
        ]

    def _maintenance(self, look: Look) -> tuple[Absence, ...]:
        """What the site has reserved for it; that of a while ago where Slurm does not tell. By scontrol alone."""
        command = command_of(self._client)
        now_s = time.monotonic()
        if command is not None and now_s - self._away_s >= _AWAY_AGE_S:
            self._away_s = now_s
            try:
                self.away, odd = reservations.read(command.reservations())
            except PortError as error:
                odd = (error.text,)
            look.notes += odd
        return self.away

    def _limits(self, facts: Facts, look: Look) -> tuple[Quota, ...]:
        """The site's limits on the jobs that are seen; those of a while ago where Slurm does not tell them. Of a user
        slurmctld shows the limits of a QOS, or of an account's, from the first job in it on: then it is asked again."""
        command = command_of(self._client)
        now_s = time.monotonic()
        rows = [self.rows[job] for job in self.jobs if job in self.rows]
        whom = {(row.user, row.account, row.qos, row.partition) for row in rows}
        due = now_s - self._limits_s >= _LIMITS_AGE_S or not whom <= self._limited
        if command is not None and self.jobs and due:
            self._limits_s, self._limited = now_s, whom
            try:
                self._quotas.took(limits.read(command.limits()))
            except PortError as error:
                look.notes.append(error.text)
        if command is not None and self.jobs and facts.accounting and now_s - self._rules_s >= _FACTS_AGE_S:
            self._rules_s = now_s  # whatever comes of it: where slurmdbd is away each question takes its time
            try:
                self._quotas.told(limits.rules(command.qos_rules()))
            except PortError as error:
                look.notes.append(error.text)
        return self._quotas.look(self.jobs, self.rows, facts, self.node_gpus)

    def _throttled(self, look: Look) -> Mapping[str, int | None]:
        """How many tasks of an array may run at a time, where anybody has changed what its user said at submission."""
        command = command_of(self._client)
        now_s = time.monotonic()
        arrays = quotas.throttled(self.jobs, self.rows)[:_MOST_ARRAYS]
        if command is not None and now_s - self._throttles_s >= _ARRAY_AGE_S * len(arrays):
            self._throttles_s = now_s
            try:
                told = command.standing(arrays)
                self._throttles = {array: limits.throttle(text) for array, text in told.items() if text}
            except PortError as error:
                look.notes.append(error.text)
        return self._throttles

    def _licences(self, look: Look) -> tuple[Quota, ...]:
        """Asked for where somebody waits for one: by scontrol alone."""
        command = command_of(self._client)
        waiting = (self.rows[name] for name, job in self.jobs.items() if job.state.startable and name in self.rows)
        if command is None or not any(quotas.needs(row) for row in waiting):
            return ()
        try:
            return quotas.of_licences(self.jobs, self.rows, limits.licences(command.licences()))
        except PortError as error:
            look.notes.append(error.text)
            return ()

    def _absent_ones(self, before: dict[JobId, JobRow], facts: Facts, look: Look) -> dict[JobId, ObservedJob]:
        """Jobs that the read does not show: those that are over, and as last seen those that Slurm has all the same."""
        sources = Sources(self._standing, self._client.ended if facts.accounting else None, self._spool.forget)
        present = {job: row.id for job, row in self.rows.items()}
        present |= {job: row.id for job, (row, _) in self.moved.items()}
        found: dict[JobId, ObservedJob] = {}
        try:
            found = {job.id: job for job in self._absent.look(present, sources, self._options.partitions, look.now_s)}
        except PortError as error:
            look.notes.append(error.text)
        for job in self._absent.left_out:
            if job in before and job in self.jobs:
                self.rows[job], found[job] = before[job], self.jobs[job]
        look.notes += self._absent.notes
        self._absent.notes.clear()
        return found

    def _standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        """What is hidden from us looks as if it were gone: then nothing is."""
        told = self._client.standing(ids)
        command = command_of(self._client)
        if command is not None and not all(told.values()):
            me, hidden = hidden_from(command, self.facts())
            if "jobs" in hidden:
                raise TryLater(
                    f"PrivateData hides others' jobs from {me}: whether {', '.join(ids)} are gone is unknown"
                )
        return told

    def _find_moved(self, rows: Mapping[JobId, JobRow]) -> None:
        """Who waits for us where it is not ours to say: found anew in each look, but for those that are not in it."""
        ours = frozenset(self._options.partitions)
        self.moved = {job: found for job, found in self.moved.items() if job not in rows}
        self.moved |= self._elsewhere(rows, ours)
        for job, row in rows.items():
            if not waits_for_us(row, self._memories.get(job), self._options):
                continue
            if ours and relisted(row, ours):
                self.moved[job] = row, f"may start in {row.partition} now, and is Slurm's own"
            elif restarts_itself(row):
                self.moved[job] = row, "is started again by Slurm itself (--requeue=expedite)"

    def _elsewhere(self, rows: Mapping[JobId, JobRow], ours: frozenset[str]) -> dict[JobId, tuple[JobRow, str]]:
        """Of those that came to ours, whom an administrator took to where nobody would ever start it, also while nobody
        looked, or who has begun there, of a list of partitions that its user named."""
        missing = {
            job
            for job, row in self.rows.items()
            if job not in rows and waits_for_us(row, self._memories.get(job), self._options)
        }
        sweep = self.in_charge and time.monotonic() - self._swept_s > _FACTS_AGE_S
        if not ours or not (missing or sweep):
            return {}
        self._swept_s = time.monotonic()
        rows_now = self._marked_still(self._client.jobs(()))
        found = {port_id(row): row for row in rows_now if ours.isdisjoint(row.partition.split(","))}
        return {
            job: (row, f"is in partition {row.partition}, and Slurm's there")
            for job, row in found.items()
            if job not in rows
            and (job in missing or came_to(row) & ours)
            and is_ours(row, self._memories.get(job), self._options)
        }

    def _find_beyond(
        self, jobs: Mapping[JobId, ObservedJob], nodes: Sequence[NodeRow], facts: Facts, words: Collection[str]
    ) -> None:
        """Jobs in a shape of their own that fit nowhere as we see the nodes, and that Slurm took all the same: GPUs of
        the lesser type of a node, or words that the module understands otherwise. We would never start them. `words`:
        those that nodes are asked about; beyond these too many jobs name nodes, each others, to be planned with."""
        fits: dict[object, bool] = {}
        for job, seen in jobs.items():
            row = self.rows.get(job)
            spec = seen.spec
            if row is None or seen.state is not JobState.QUEUED or spec is None or not keeps_shape(row) or not nodes:
                continue
            what = (spec.shape, spec.gpu_types, spec.gpus.min)
            if what not in fits:
                asked = {word for word in spec.shape.features if " " in word} if spec.shape is not None else set()
                fits[what] = asked <= set(words) and holdings.could_hold(spec, nodes, facts.memory_counts)
            if not fits[what] and waits_for_us(row, self._memories.get(job), self._options):
                self.moved[job] = row, "fits on no nodes as Horae sees them, and is Slurm's own"

    def _read(self) -> tuple[dict[JobId, JobRow], list[NodeRow]]:
        ours = self._options.partitions
        self._bare = {}
        others = self._spool.beside() & set(self.facts().partitions) - set(ours) if ours else ()
        rows = self._client.jobs((*ours, *sorted(others)))
        if others:
            rows = [row for row in rows if is_beside(row) or not set(ours).isdisjoint(row.partition.split(","))]
        return {port_id(row): row for row in self._marked_still(rows)}, self._client.nodes(ours)

    def _marked_still(self, rows: Sequence[JobRow]) -> Iterator[JobRow]:
        """With our mark also where an administrator's own words have taken its place since it was last seen."""
        marks = self._memories.marks()
        for row in rows:
            mark = marks.get(row.id)
            if mark is not None and tag_of(row) is None and mark.is_of(row.uid, row.submit_s, row.restarts):
                words = shlex.quote(f"{printable(row.admin_comment)} {mark.text}".strip())
                self._bare[row.id] = (
                    f"{row.id}: its AdminComment was written over, and with it Horae's mark, which is remembered: "
                    f"`scontrol update jobid={row.id} AdminComment={words}` gives it back"
                )
                yield replace(row, admin_comment=mark.text)
            else:
                yield row

    def _with_mark(self, row: JobRow, memo: Memo) -> Memo:
        if not self.in_charge or not (text := tag_text(row.admin_comment)):
            return memo
        mark = Mark(
            text=text,
            uid=row.uid,
            submit_s=row.submit_s,
            restarts=row.restarts,
            bare=row.id in self._bare,
        )
        if memo.mark == mark:
            return memo
        return replace(memo, mark=mark)

    def _judged(self, job: JobId, row: JobRow, facts: Facts, now_s: float) -> state_machine.Judgement:
        memo = self._memories.get(job)
        last = self._verdicts.get(job)
        if last is not None and last[0] is row and last[1].memo is memo:
            return last[1]
        memo = self._with_mark(row, memo)
        verdict = state_machine.judge(row, memo, facts, self._options, now_s, lambda: self._lives(job, row, memo))
        if verdict.job is not None and verdict.job.submitted_s is not None:
            verdict = replace(verdict, job=replace(verdict.job, submitted_s=self._arrivals.of(job)))
        job_seen = verdict.job
        waits = job_seen is not None and job_seen.state is JobState.QUEUED and job_seen.blocked is None
        if waits and not verdict.steps and not verdict.note:
            self._verdicts[job] = (row, verdict)
        else:
            self._verdicts.pop(job, None)
        return verdict

    def _lives(self, job: JobId, row: JobRow, memo: Memo) -> bool:
        """Whether the supervisor of the newest start has said anything: then its user's code was reached."""
        grant = memo.grant
        return grant is not None and self._spool.account(job, row.uid).epoch >= grant.epoch

    def _marked(self, job: ObservedJob, row: JobRow, now_s: float) -> ObservedJob:
        """With what the job's supervisor says."""
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
