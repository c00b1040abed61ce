"""The cluster port on Slurm: one read a round, writes in one scontrol, and the follow-ups that a start needs.

A start (`starts.py`) is `update` (shape, nodes, time left) and `release`, of a job that keeps its own shape the time
alone; a stop (`stops.py`) is USR1 to the batch shell and exit 86, by force after the grace. What these need beyond the
first write `observe` shows as due, while this arbiter's claim stands, and `follow_up` does. Observing writes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from horae.port import (
    Capabilities,
    Due,
    FixConfiguration,
    JobId,
    LogChunk,
    Never,
    Observation,
    PortError,
    raise_any,
)  # fmt: skip
from horae.spec import JobSpec
from horae.untrusted import Unbelievable, printable
from policy.model import Allocation, Limits, Pinning
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.errors import Gone
from slurm_plugin.files.spool import Spool
from slurm_plugin.files.transport import LocalTransport, Transport
from slurm_plugin.jobs import shapes, state_machine
from slurm_plugin.jobs.observation import Known, Observer
from slurm_plugin.jobs.order import Order
from slurm_plugin.jobs.record import Memories
from slurm_plugin.jobs.specification import port_id
from slurm_plugin.jobs.starts import RESTART_GAP_S, Starts, changed_since
from slurm_plugin.jobs.stops import Stops
from slurm_plugin.jobs.waiting import WAITING, parked
from slurm_plugin.options import Options, parse_options
from slurm_plugin.records import Facts, JobRow
from slurm_plugin.rights import HIDING, command_of, hidden_from

CLEAN_EVERY_S = 3600.0


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
        self._token: str | None = None
        self._due: list[tuple[JobRow, state_machine.Step]] = []  #: what the newest look found to be done
        self._moved: dict[JobId, tuple[JobRow, str]] = {}  #: whom it found to be Slurm's own now, and why
        self._clean_s = 0.0  #: when the spool is to be cleaned next, by the clock that never jumps
        self._left: tuple[str, ...] = ()  #: what could not be
        self._lock = threading.RLock()
        self._observer = Observer(options, client, self._spool, self._memories)
        self._starts = Starts(client, self._spool, self._memories, self._observer, self._lock, self._stands)
        self._order = Order(client, self._spool, self._memories)
        self._stops = Stops(options, client, self._spool, self._memories, self._observer)

    # --- reading ---

    def facts(self) -> Facts:
        return self._observer.facts()

    def capabilities(self) -> Capabilities:
        facts = self.facts()
        return Capabilities(
            cluster=f"slurm {facts.version} ({facts.cluster})",
            limits=Limits(equal_gpus_per_node=True, one_type_per_job=False, pinning=Pinning.EXACT),
            owns_submission=False,
            reshape_in_place=False,
            order_lever="SiteFactor" if facts.multifactor else None,
            restart_gap_s=RESTART_GAP_S,
            hides=tuple(sorted(facts.private & HIDING)),
            notes=tuple(self._notes(facts)),
        )

    def observe(self) -> Observation:
        with self._lock:
            with self._memories.together():
                look = self._observer.look(self._starts.waits)
                due = look.due
                for row, memo in look.staying:
                    step = self._stops.let_go(row, memo, look.now_s)
                    due += [(row, step)] if step is not None else []
            claim = self._spool.claimed()
            notes = [
                *self._starts.late,
                *self._spool.odd.values(),
                *self._memories.notes,
                *self._client.notes(),
                *look.notes,
                *self._left,
            ]
            self._starts.late.clear()
            self._memories.notes.clear()
            self._spool.odd.clear()
            ours = self._token is not None and claim == self._token
            self._due = due if ours else []
            self._moved = dict(self._observer.moved) if ours else {}
            jobs = tuple(self._observer.jobs.values())
            lost = self.facts().multifactor and self._order.lost(self._observer.rows)
            due_now = self._shown_due()
            return Observation(
                look.now_s, look.nodes, jobs, claim, tuple(notes), due_now, look.quotas, lost, away=look.away
            )

    def _shown_due(self) -> tuple[Due, ...]:
        """One line a job, with all that is to be done for it."""
        why: dict[JobId, list[str]] = {}
        for row, step in self._due:
            why.setdefault(port_id(row), []).append(step.why)
        for job, (_, reason) in self._moved.items():
            why.setdefault(job, []).append(reason)
        return tuple(Due(job, "; ".join(reasons)) for job, reasons in why.items())

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        row = self._known(job).row
        try:
            path = shapes.stdout_path(row)
            found = self._spool.output(job, row.uid, offset, limit)
            if found is None and path is not None:
                found = self._spool.output_of(path, row.uid, offset, limit)
            if found is None:
                return LogChunk(b"", offset)
        except (OSError, ValueError, Unbelievable) as error:
            raise FixConfiguration(
                f"cannot read the log of {job}: {printable(str(error))}",
                "run the trainer under horae-exec, or open the log",
            ) from error
        end = found.start + len(found.data)
        return LogChunk(found.data, end, found.identity, end >= found.size)

    def noticed(self) -> object:
        """Follows what the Lua module and the epilog note; without the lock, so that a slow read delays nothing."""
        return self._spool.noticed()

    # --- for the doctor ---

    @property
    def transport(self) -> Transport:
        return self._transport

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
        if command := command_of(self._client):
            me, hidden = hidden_from(command, self.facts())
            if hidden:
                raise FixConfiguration(
                    f"PrivateData hides others' {' and '.join(sorted(hidden))} from {me}",
                    "give Horae's account AdminLevel=Operator, see `horae doctor`",
                )
        self._spool.prepare()
        self._spool.claim(token, self._observer.now_s())
        self._token, self._observer.in_charge = token, True

    def heartbeat(self) -> None:
        if self._options.hold and self._options.partitions:
            self._spool.beat(self._observer.now_s(), self._options.partitions)  # slurmctld's host compares it
            with self._lock:
                self._spool.note_holds(self._memories.held())
                self._spool.note_ordered(self._memories.ordered())
                self._spool.note_marks(self._memories.bare())
        if time.monotonic() >= self._clean_s:
            self._clean_s = time.monotonic() + CLEAN_EVERY_S
            self._clean()

    def _clean(self) -> None:
        """Folders of jobs that are over leave the spool by age, and by how much they hold."""
        living = {memo.job for memo in self._memories.all()} | self._observer.rows.keys()
        keep_s, most = self._options.keep_days * 86400.0, int(self._options.keep_gb * 1e9)
        try:
            self._left = tuple(self._spool.clean(self._observer.now_s(), keep_s, most, living))
        except (PortError, OSError, Unbelievable) as error:
            self._left = (f"the spool could not be cleaned: {printable(str(error))}",)

    def _stands(self) -> bool:
        """Whether no other arbiter claimed the cluster since."""
        return self._spool.claimed() == self._token

    # --- acting ---

    def submit(self, job: JobId, spec: JobSpec) -> None:
        raise Never("on Slurm, users submit with sbatch, or `horae submit --sbatch=OPTION`; jobs then arrive held")

    at_once = 64

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise_any(self.start_many([(job, allocation, epoch)]))

    def start_many(self, starts: Sequence[tuple[JobId, Allocation, int]]) -> dict[JobId, PortError]:
        with self._lock:
            found, errors = self._known_of([job for job, _, _ in starts])
            asked = [(found[job], allocation, epoch) for job, allocation, epoch in starts if job in found]
            return errors | self._starts.start(asked)

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise Never("Slurm cannot change a running job's GPUs; stop it and start it in the new shape")

    def checkpoint_and_stop(self, job: JobId, grace_s: float) -> None:
        raise_any(self.stop_many([(job, grace_s)]))

    def stop_many(self, stops: Sequence[tuple[JobId, float]]) -> dict[JobId, PortError]:
        with self._lock:
            found, errors = self._known_of([job for job, _ in stops])
            asked = [(found[job], grace_s) for job, grace_s in stops if job in found and self._stops.due(found[job])]
            for known, _ in asked:
                self._starts.forget(known.seen.id)
            return errors | self._stops.stop(asked)

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, PortError]:
        """The steps that the newest look found for these jobs; an error of one hinders no other."""
        with self._lock:
            wanted = set(jobs)
            taken = [(row, step) for row, step in self._due if port_id(row) in wanted]
            self._due = [(row, step) for row, step in self._due if port_id(row) not in wanted]
            due = [(row, step) for row, step in taken if not self._starts.waits(port_id(row))]
            errors = self._written([(row, step) for row, step in due if not step.ask])
            asked = [(row, f"{row.id}: {step.why}") for row, step in due if step.ask]
            return errors | self._stops.ask_again(asked) | self._let_moved_go(wanted)

    def _written(self, due: Sequence[tuple[JobRow, state_machine.Step]]) -> dict[JobId, PortError]:
        """What is due is written; whose could not be."""
        timed = {port_id(row): row for row, step in due if step.sets_begin}
        errors = changed_since(self._client, timed, self._observer.now_s())
        left = [(row, step) for row, step in due if port_id(row) not in errors]
        batches = [Batch(step.writes, f"{row.id}: {step.why}") for row, step in left]
        self._spool.note_holds(self._memories.held())
        failed = zip(left, self._client.write_each(batches), strict=True)
        return errors | {port_id(row): error for (row, _), error in failed if error is not None}

    def cancel(self, job: JobId) -> None:
        raise_any(self.cancel_many([job]))

    def cancel_many(self, jobs: Sequence[JobId]) -> dict[JobId, PortError]:
        with self._lock:
            for job in jobs:
                self._starts.forget(job)
            found, errors = self._known_of(jobs)
            living = {job: known for job, known in found.items() if not known.seen.state.ended}
            with self._memories.together():
                for known in living.values():
                    self._memories.put(replace(known.memo, cancelled=True))
            ids = [known.row.id for known in living.values()]
            refused = self._client.cancel(ids, f"cancelling {', '.join(living)}"[:80]) if ids else {}
            failed = {job: refused[known.row.id] for job, known in living.items() if known.row.id in refused}
            # Not before Slurm knows: whose trainer ends because of the file ends by itself, and counts as failed.
            for job in living.keys() - failed.keys():
                self._spool.ask_to_end(job)
            return errors | failed

    def release(self, job: JobId) -> None:
        raise_any(self.release_many([job]))

    def release_many(self, jobs: Sequence[JobId]) -> dict[JobId, PortError]:
        with self._lock:
            found, errors = self._known_of(jobs)
            for job in jobs:
                self._starts.forget(job)
            living = {job: known.row for job, known in found.items() if not known.seen.state.ended}
            over = found.keys() - living.keys()
            return {job: error for job, error in errors.items() if not isinstance(error, Gone)} | self._hand_back(
                living, over
            )

    def release_rest(self) -> None:
        """Jobs with an open dependency or a begin time ahead: Slurm waits for those by itself."""
        with self._lock:
            errors = self._hand_back(self._observer.unoffered)
            self._observer.unoffered = {job: row for job, row in self._observer.unoffered.items() if job in errors}
            raise_any(errors)

    def _let_moved_go(self, wanted: Collection[JobId]) -> dict[JobId, PortError]:
        """Whom an administrator took to a partition that is not ours waits there for Slurm alone, and who fits nowhere
        here."""
        errors = self._hand_back({job: row for job, (row, _) in self._moved.items() if job in wanted})
        for job in self._moved.keys() & set(wanted) - errors.keys():
            self._observer.moved.pop(job, None)
        self._moved = {job: found for job, found in self._moved.items() if job not in wanted}
        return errors

    def _hand_back(self, jobs: Mapping[JobId, JobRow], over: Collection[JobId] = ()) -> dict[JobId, PortError]:
        """As fast as slurmctld answers, and lets itself be asked: whoever leaves has said so. `over`: jobs that need no
        write any more."""
        now_s = self._observer.now_s()
        freed = {job: row for job, row in jobs.items() if row.state in WAITING and (row.held or parked(row, now_s))}
        errors = changed_since(self._client, freed, now_s)
        known = {job: (row, self._memories.get(job)) for job, row in jobs.items() if job not in errors}
        ordered = [row for row, memo in known.values() if shapes.only_ordered(row, memo)]
        with self._client.pace.hurried():
            try:
                tasks = self._order.tasks(ordered, self.facts().release)
            except PortError as error:
                return dict.fromkeys(jobs, error)
            groups = shapes.handing_back_all(known, now_s, tasks)
            failed = self._client.write_each([batch for _, batch in groups])
        errors |= {
            job: error for (group, _), error in zip(groups, failed, strict=True) if error is not None for job in group
        }
        self._handed_back({*jobs, *over} - errors.keys())
        return errors

    def _handed_back(self, jobs: Collection[JobId]) -> None:
        """Slurm's own from now on."""
        with self._memories.together():
            for job in jobs:
                self._memories.put(replace(self._memories.get(job), released=True, ordered=0))
        self._spool.note_ordered(self._memories.ordered())
        for job in jobs:
            self._spool.forget(job)

    def set_order(self, jobs: Sequence[JobId]) -> None:
        if not self.facts().multifactor:
            raise Never(
                "this Slurm has no lever for the order of pending jobs (PriorityType is not priority/multifactor)"
            )
        with self._lock:
            ours = [job for job in jobs if job in self._observer.jobs]  # among the rows are others' too
            self._order.set(ours, self._observer.rows, self.facts().release)

    def set_reason(self, job: JobId, text: str) -> None:
        self._spool.reason(job, text)

    def close(self) -> None:
        with self._lock:
            self._starts.close()
            self._client.close()
            self._transport.close()

    # --- how ---

    def _known(self, job: JobId) -> Known:
        """The job as last observed; one fresh read when it was never seen. Raises Gone when there is none."""
        if self._observer.known(job) is None:
            self.observe()
        return self._observer.must_know(job)

    def _known_of(self, jobs: Sequence[JobId]) -> tuple[dict[JobId, Known], dict[JobId, PortError]]:
        """`_known` of many, with one fresh read for all."""
        found: dict[JobId, Known] = {}
        errors: dict[JobId, PortError] = {}
        if any(self._observer.known(job) is None for job in jobs):
            try:
                self.observe()
            except PortError as error:
                errors = {job: error for job in jobs if self._observer.known(job) is None}
        for job in jobs:
            if job not in errors:
                try:
                    found[job] = self._observer.must_know(job)
                except PortError as error:
                    errors[job] = error
        return found, errors

    def _notes(self, facts: Facts) -> list[str]:
        notes = []
        if state_machine.CHECKPOINTED not in facts.exit_hold:
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
        from slurm_plugin.files.ssh import SshTransport

        transport = SshTransport(checked)
    else:
        transport = LocalTransport(checked.prefix, checked.environment)
    return SlurmCluster(checked, transport, choose(checked, transport))
