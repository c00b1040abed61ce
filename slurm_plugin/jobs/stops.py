"""Stops: the stop file and the signal, for many jobs together; by force after the grace; and those that must stay.

Where exit code 86 would look like a failure (no RequeueExitHold, or another job waits for this one's failure) the
supervisor stays after the checkpoint, and the job is requeued as held instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from horae.port import JobId, Never, PortError, TryLater
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.comment import parse_tag
from slurm_plugin.files.spool import Account, Spool
from slurm_plugin.jobs import mails, state_machine
from slurm_plugin.jobs.observation import Known, Observer
from slurm_plugin.jobs.record import Memo, Memories, Stop
from slurm_plugin.jobs.specification import keeps_shape, port_id, stays
from slurm_plugin.jobs.waiting import is_awaited, taken_back
from slurm_plugin.options import Options
from slurm_plugin.records import JobRow
from slurm_plugin.writes import Write, requeue_hold

#: a batch script may not have set its trap yet, nor horae-exec said that it lives
YOUNG_S = 2.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A job whose request to leave is to be carried out."""

    row: JobRow
    memo: Memo
    doing: str


class Stops:
    def __init__(self, options: Options, client: Routes, spool: Spool, memories: Memories, observer: Observer) -> None:
        self._options, self._client, self._spool, self._memories = options, client, spool, memories
        self._observer = observer

    def due(self, known: Known) -> bool:
        """Whether it holds GPUs and was not asked yet."""
        stop = known.memo.stop
        return known.seen.state.holds and not (stop and stop.restarts == known.row.restarts)

    def stop(self, asked: Sequence[tuple[Known, float]]) -> dict[JobId, PortError]:
        """Ask each, with its grace, to checkpoint and leave; an error of one is its own. Only those that are `due`."""
        errors: dict[JobId, PortError] = {}
        back: dict[JobId, Batch] = {}
        leave: list[_Asked] = []
        later: list[tuple[JobId, Memo]] = []
        for known, grace_s in asked:
            row = known.row
            memo = known.memo
            job = known.seen.id
            stop = Stop(self._observer.now_s(), grace_s, row.restarts)
            if stays(row) and row.state != "PENDING":  # whoever asks: the signal would end it
                what = "keeps its own shape" if keeps_shape(row) else "may not be requeued (Requeue=0)"
                errors[job] = Never(f"{job} {what}: once it has started, only its end frees its GPUs")
            elif memo.outstanding and row.state == "PENDING":
                # If it began to run before the hold came, the next observation asks it to leave.
                taken = replace(memo.with_last(withdrawn=True, recalled=True), stop=stop, held_s=self._observer.now_s())
                later.append((job, taken))
                back[job] = Batch((taken_back(row, stop.at_s),), f"taking back the grant of {job}")
            elif row.state == "RUNNING" and row.reason != "Prolog":
                leave.append(_Asked(row, replace(memo, stop=stop), f"stopping {job}"))
            elif row.state != "COMPLETING":  # the next observation asks: during the prolog a signal is lost, or kills
                later.append((job, replace(memo, stop=stop)))
        # First: what is held and not put down is taken for an administrator's after a crash. A hold that fails is due
        # in the next observation.
        unknown = self._note(later)
        self._spool.note_holds(self._memories.held())
        if not unknown:
            failed = self._client.write_each(list(back.values()))
            errors |= {job: error for job, error in zip(back, failed, strict=True) if error is not None}
        return errors | unknown | self._ask(leave)

    def _note(self, memos: Sequence[tuple[JobId, Memo]]) -> dict[JobId, PortError]:
        """Put them down before anything is asked; all or none."""
        try:
            with self._memories.together(durable=True):
                for _, memo in memos:
                    self._memories.put(memo)
        except PortError as error:
            return {job: error for job, _ in memos}
        return {}

    def ask_again(self, due: Sequence[tuple[JobRow, str]]) -> dict[JobId, PortError]:
        """Those that were asked to leave and have not yet; with what is being done, for people."""
        found = []
        for row, doing in due:
            memo = self._memories.get(port_id(row))
            if memo.stop is not None:
                found.append(_Asked(row, memo, doing))
        self._withdraw([each for each in found if stays(each.row)])
        return self._ask([each for each in found if not stays(each.row)])

    def _withdraw(self, asked: Sequence[_Asked]) -> None:
        """Of those that leaving would end for good: a supervisor goes on from the checkpoint, in the same start. A
        script of its user's own that follows the signal ends by it."""
        told = []
        for each in asked:
            epoch = each.memo.epoch_of(each.row.restarts)
            self._spool.ask_to_go_on(port_id(each.row), epoch)
            self._memories.put(replace(each.memo, stop=None))
            tag = parse_tag(each.row.admin_comment)
            told.append(mails.again(each.row.id, tag))
        self._mail(told)

    def _ask(self, asked: Sequence[_Asked]) -> dict[JobId, PortError]:
        """Stop file for those who poll it; the signal for all but supervisors that are not the batch shell.

        A signal to a shell without a trap for it would end the job. A start that is too young to have a supervisor
        and too young to have a trap is left for the next observation.
        """
        try:
            awaited = self._observer.awaited() if asked and self._options.stop == "auto" else frozenset[int]()
        except PortError as error:  # to leave may start another's job: asked again in the next observation
            return {port_id(each.row): error for each in asked}
        now_s = self._observer.now_s()
        ready: list[tuple[_Asked, JobId, int, Account]] = []
        notes: list[tuple[JobId, Memo]] = []
        requests: list[tuple[JobId, int, Stop]] = []
        for each in asked:
            row = each.row
            memo = each.memo
            stop = each.memo.stop
            assert stop is not None
            job = port_id(row)
            epoch = memo.epoch_of(row.restarts)
            account = self._spool.account(job, row.uid)
            young = row.start_s is not None and now_s - row.start_s < YOUNG_S
            stop = replace(stop, stay=self._stays(row, awaited))
            if account.epoch == epoch or not young or now_s >= stop.at_s + stop.grace_s:
                stop = replace(stop, signalled_s=now_s)
                ready.append((each, job, epoch, account))
            notes.append((job, replace(memo, stop=stop)))
            requests.append((job, epoch, stop))
        if errors := self._note(notes):
            return errors
        for job, epoch, stop in requests:
            self._spool.ask_to_stop(job, epoch, stop.grace_s, stop.at_s, stop.stay)
        signals: dict[str, JobId] = {}
        writes: list[tuple[JobId, Batch]] = []
        for each, job, epoch, account in ready:
            back = self._options.stop == "requeuehold" or is_awaited(each.row, awaited)
            if back and account.epoch != epoch:  # its own script: TERM is its request
                writes.append((job, Batch((requeue_hold(each.row.id),), each.doing)))
            elif account.epoch != epoch or account.direct:
                signals[each.row.id] = job
        self._hush([each.row for each, *_ in ready if each.memo.stop is not None and not each.memo.stop.signalled_s])
        failed = self._client.write_each([batch for _, batch in writes])
        errors = {job: error for (job, _), error in zip(writes, failed, strict=True) if error is not None}
        return errors | self._signal(signals, asked[0].doing if len(asked) == 1 else f"stopping {len(signals)} jobs")

    def _hush(self, rows: Sequence[JobRow]) -> None:
        """Their mails rest. One that could not be told costs its user a mail, and no stop waits for that."""
        self._mail([mails.rest(row.id, parse_tag(row.admin_comment)) for row in rows])

    def _mail(self, writes: Sequence[Write | None]) -> None:
        self._client.write_each([Batch((write,), f"mails of a stop: {write}") for write in writes if write is not None])

    def _signal(self, jobs: dict[str, JobId], doing: str) -> dict[JobId, PortError]:
        if not jobs:
            return {}
        try:
            failed = self._client.signal(tuple(jobs), "USR1", doing)
        except PortError as error:
            failed = dict.fromkeys(jobs, error)
        # TryLater: the stop file is out, and the signal is repeated while nothing happens
        return {jobs[each]: error for each, error in failed.items() if not isinstance(error, TryLater)}

    def _stays(self, row: JobRow, awaited: frozenset[int]) -> bool:
        """Whether its supervisor is to stay after the checkpoint: where exit code 86 would look like a failure."""
        if self._options.stop != "auto":
            return self._options.stop == "requeuehold"
        return not self._observer.holds_exit_code() or is_awaited(row, awaited)

    def let_go(self, row: JobRow, memo: Memo, now_s: float) -> state_machine.Step | None:
        """The requeue of a job that stays, once its supervisor says that it has checkpointed."""
        job = port_id(row)
        epoch = memo.epoch_of(row.restarts)
        account = self._spool.account(job, row.uid)
        if (account.ended, account.exit_code) != (epoch, state_machine.CHECKPOINTED):
            return None
        found = state_machine.let_go(row, memo, now_s)
        if found is None:
            return None
        self._memories.put(found[0])
        return found[1]
