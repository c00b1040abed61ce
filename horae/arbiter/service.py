"""The arbiter as a running thing: `Arbiter`, safe to call from any thread.

Three threads, each with one job (a fourth watches a cluster that tells of events). The core's owns the journal and
all state, and never waits for anybody: requests and results come to it through one mailbox. The executor's talks to the
cluster, the runner's waits for policies. So the arbiter answers and accepts jobs while a cluster is slow or a policy
computes.

When it is dead, nothing expires by itself: running jobs run on, and the next arbiter takes up where the journal
and the cluster say.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import structlog

from horae.arbiter.admit.models import Models, standard
from horae.arbiter.core import Act, Ask, Core, Instruction, LookNow, Stage
from horae.arbiter.decide.policy_runner import PolicyRunner, Question, Worker
from horae.arbiter.decide.snapshot import Apps
from horae.arbiter.driver import reads_logs
from horae.arbiter.execute.executor import Executor, Op
from horae.arbiter.mailbox import PATIENCE_S, Mailbox, Posted, Submission
from horae.arbiter.notify import notify, watchdog_s
from horae.arbiter.observe.log_profiles import LogProfiles
from horae.arbiter.observe.measurements import Profiles
from horae.arbiter.observe.news import SELDOM_S, News
from horae.arbiter.requests import authority
from horae.arbiter.requests.agents import Agents
from horae.arbiter.requests.authority import Requester
from horae.arbiter.requests.commands import Commands, NoSuchJob
from horae.arbiter.round import no_apps
from horae.arbiter.round import question as ask
from horae.arbiter.teller import Teller
from horae.config import Config
from horae.journal import Clock, Event, JobRecord, Journal, Kind
from horae.journal.codec import restore
from horae.journal.measured import Measurement
from horae.port import ClusterPort, JobId, LogChunk, Noticing, PortError, TryLater
from horae.spec import JobSpec
from policy.model import BadInput, Decision, Seconds, Snapshot

T = TypeVar("T")
log = structlog.get_logger("horae.arbiter")

#: After a bug of ours a round is given up and the next one waits this long.
BUG_PAUSE_S = 30.0
#: How long a job that is handed in waits for the first look.
_UNSEEN_S = 10.0


#: What a request may be answered with. Anything else is a bug.
EXPECTED = (BadInput, authority.NotAllowed, NoSuchJob, PortError)


class Bug(Exception):
    """Something of ours went wrong; the log has the details."""


class Arbiter:
    def __init__(
        self,
        config: Config,
        port: ClusterPort,
        *,
        models: Models | None = None,
        runner: PolicyRunner | None = None,
        profiles: Profiles | None = None,
        apps: Apps = no_apps,
        clock: Clock | None = None,
        journal: Journal | None = None,
    ) -> None:
        """Takes up the journal (or one that is open already). Raises AlreadyRunning, JournalStopped, BadInput."""
        self.config = config
        self._journal = journal or Journal(config.state_dir, clock)
        profiles = profiles or LogProfiles(spec_of=self._spec_of)
        # Ended jobs too: what they measured of their model is what the next one starts with.
        profiles.restore({
            r.id: restore(Measurement, r.measured) for r in self._journal.ledger.jobs.values() if r.measured
        })  # fmt: skip
        self._port, self._executor, self._runner = port, Executor(port, profiles), runner or Worker()
        self._core = Core(config, self._journal, models or standard(), apps)
        self._teller = Teller()
        self._commands, self._agents = Commands(self._core), Agents(self._core)
        self._mail = Mailbox()
        self._tasks: dict[str, queue.SimpleQueue[Callable[[], None] | None]] = {
            "executor": queue.SimpleQueue(),
            "runner": queue.SimpleQueue(),
        }
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self.ready, self.over = threading.Event(), threading.Event()  #: looked once; will do nothing more

    def _spec_of(self, job: JobId) -> JobSpec | None:
        record = self._journal.ledger.jobs.get(job)
        return None if record is None else record.spec

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        for name, target in (("core", self._core_loop), ("executor", self._task_loop), ("runner", self._task_loop)):
            args = () if name == "core" else (self._tasks[name],)
            thread = threading.Thread(target=target, args=args, name=f"horae-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._mail.open()
        if isinstance(self._port, Noticing):
            watch = threading.Thread(target=self._watch_loop, args=(self._port,), name="horae-watch", daemon=True)
            self._threads.append(watch)
            watch.start()

    def stop(self, timeout_s: Seconds = 10.0) -> None:
        """Finish the call that is being made, and close. Running jobs run on."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._mail.close()
        for tasks in self._tasks.values():
            tasks.put(None)
        self._runner.close()
        for thread in self._threads:
            # The core waits for nobody but the disk, and the journal is its own as long as it is there.
            thread.join(None if thread.name == "horae-core" else timeout_s)
        self._mail.refuse()
        self._executor.close()
        self._journal.close()
        self.over.set()

    def run(self, begins: Callable[[], None] = lambda: None) -> int:
        """Serve in the foreground until SIGTERM or SIGINT. 0: stopped; 1: another arbiter has the cluster.

        `begins` is called once these stop it in good order: who reads what that says may send one at once.
        """
        # Not an Event: the handler runs in the thread that waits, perhaps while that holds the event's lock.
        asked: queue.SimpleQueue[int] = queue.SimpleQueue()

        def stop(number: int, _frame: FrameType | None) -> None:
            asked.put(number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        beat_s, told_ready = watchdog_s(), False
        try:
            begins()
            self.start()
            while not _came(asked, min(beat_s or 1.0, 1.0)) and not self.over.is_set():
                if not told_ready and self.ready.is_set():
                    told_ready = notify("READY=1", f"STATUS={self._core.capabilities.cluster}") or True
                    for note in self._core.capabilities.notes:
                        log.warning(f"note: {note}")
                if beat_s is not None and self._alive():
                    notify("WATCHDOG=1")
            notify("STOPPING=1")
        finally:
            stood_down = self._core.stage is Stage.OVER
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)
        return 1 if stood_down else 0

    def _alive(self) -> bool:
        """Whether the core takes its mail."""
        try:
            return self._mail.ask(lambda: True, timeout_s=5.0)
        except TryLater:  # a disk may hold it up for longer: the watchdog's patience is the site's to say
            return False

    # --- the core's thread --------------------------------------------------------------------------------

    def _core_loop(self) -> None:
        self._guarded(self._journal.take_room, None)
        while not self._stopping.is_set():
            self._guarded(lambda: self._follow(self._core.tick()), None)
            wait_s = None
            if self._core.stage is Stage.IDLE:  # until the next round is due
                wait_s = max(self._core.next_s() - self._core.now_s(), 0.0)
            for message in self._mail.batch(wait_s):
                match message:
                    case list():
                        self._guarded(partial(self._submit, message), None)
                    case Posted(what, answer):
                        self._guarded(what, answer)
            if self._core.stage is Stage.OVER:
                self.over.set()

    def _submit(self, messages: Sequence[Submission]) -> None:
        """One write to the disk for all of them."""
        try:
            answers = self._commands.submit_all([(m.specs, m.caller) for m in messages])
        except Exception as error:
            for message in messages:
                message.answer.set_exception(error if isinstance(error, EXPECTED) else Bug(str(error)))
            if not isinstance(error, EXPECTED):
                raise
            return
        for message, found in zip(messages, answers, strict=True):
            if isinstance(found, tuple):
                message.answer.set_result(found)
            else:
                message.answer.set_exception(found)

    def _guarded(self, what: Callable[[], Any], answer: Future[Any] | None) -> None:
        """Run one thing on the core's thread. A bug in it costs one request or one round, not the arbiter."""
        try:
            value = what()
        except EXPECTED as error:
            if answer is None:
                self._give_up(str(error))
            else:
                answer.set_exception(error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            log.exception("a round was given up" if answer is None else "a request failed")
            if answer is None:
                self._give_up(text)
            else:
                answer.set_exception(Bug(text))
        else:
            if answer is not None:
                answer.set_result(value)
        self._teller.look(self._core.ledger.alerts, self._core.stalled)

    def _give_up(self, why: str) -> None:
        """The core's thread goes on whatever that meets: an arbiter without it would only seem to live."""
        try:
            self._core.give_up_round(why, BUG_PAUSE_S)
        except Exception:
            log.exception("a round was given up, and that could not be written down")

    def _follow(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case LookNow():
                    self._give("executor", self._look)
                case Ask(question):
                    self._give("runner", partial(self._answer, question))
                case Act(ops, budget_s):
                    self._give("executor", partial(self._perform, ops, budget_s))

    def _give(self, to: str, task: Callable[[], None]) -> None:
        self._tasks[to].put(task)

    # --- the other threads --------------------------------------------------------------------------------

    def _task_loop(self, tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (task := tasks.get()) is not None and not self._stopping.is_set():
            try:
                task()
            except Exception as error:
                log.exception("a call failed in a way it should not")
                text = f"{type(error).__name__}: {error}"
                self._mail.put(partial(self._core.give_up_round, text, BUG_PAUSE_S))

    def _watch_loop(self, port: Noticing) -> None:
        news, wait_s, odd = News(self.config.rounds.debounce_s), SELDOM_S, False
        while not self._stopping.wait(wait_s):
            began_s, awaited = time.monotonic(), self._core.awaited
            try:
                seen = port.noticed()
            except Exception as error:  # the rounds come anyway, and say what is wrong with the cluster
                if not isinstance(error, PortError | OSError) and not odd:
                    odd = True
                    log.exception("a cluster tells of events in a way it should not: looked at once a tick meanwhile")
                wait_s = SELDOM_S
                continue
            now_s = time.monotonic()
            if news.settled(seen, now_s, awaited=awaited):
                self._mail.put(self._core.told)
            wait_s = news.wait_s(now_s - began_s, awaited=awaited)

    def _look(self) -> None:
        look = self._executor.look(read_logs=reads_logs(self._core))
        self._back(self._core.looked, look)
        if look.observation is not None:
            self._mail.put(self.ready.set)

    def _answer(self, question: Question) -> None:
        self._back(self._core.judged, question.pool, self._runner.ask(question))

    def _perform(self, ops: Sequence[Op], budget_s: Seconds) -> None:
        self._back(self._core.acted, self._executor.perform(ops, budget_s))

    def _back(self, handler: Callable[..., Sequence[Instruction]], *results: Any) -> None:
        self._mail.put(lambda: self._follow(handler(*results)))

    # --- requests, from any thread ------------------------------------------------------------------------

    def submit(self, spec: JobSpec, caller: Requester) -> JobId:
        """Acknowledged means journaled. Raises BadInput, NotAllowed, Never, JournalStopped, TryLater."""
        return self.submit_many([spec], caller)[0]

    def submit_many(self, specs: Sequence[JobSpec], caller: Requester) -> tuple[JobId, ...]:
        """All or none. Which numbers are taken, the cluster alone knows where the journal was lost or is an older copy:
        none is given before it was seen, or somebody else's job would be its owner's too."""
        if not self.ready.wait(_UNSEEN_S):
            raise TryLater("the cluster has not been seen since this arbiter began: no job is taken before")
        return self._mail.submit(specs, caller)

    def command(self, what: Callable[[Commands], T]) -> T:
        """Ask for anything else. Raises NoSuchJob, BadInput, NotAllowed, TryLater, JournalStopped."""
        return self._mail.ask(lambda: what(self._commands))

    def agents(self, what: Callable[[Agents], T]) -> T:
        """Ask what apps' own agents are told. Raises BadInput, NotAllowed, TryLater, JournalStopped."""
        return self._mail.ask(lambda: what(self._agents))

    def wake(self) -> None:
        """Something happened in the cluster: look soon."""
        self._mail.ask(self._core.wake)

    # --- questions, from any thread ---------------------------------------------------------------------------

    def spec(self, job: JobId) -> JobSpec:
        return self._mail.ask(lambda: self._record(job).spec)

    def history(
        self, job: JobId | None = None, *, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> tuple[Event, ...]:
        """Events as they were journaled: of one job, or all. Read beside the arbiter, not through it."""
        return self._journal.history(job=job, after=after, limit=limit, newest_first=newest_first)

    def history_lots(
        self, job: JobId | None, *, after: int, limit: int, begin_s: Seconds
    ) -> Iterator[tuple[Event, ...]]:
        """The newest `limit` of them, oldest first, a few at a time (`Journal.lots`)."""
        return self._journal.lots(job=job, after=after, limit=limit, begin_s=begin_s)

    def view(self, what: Callable[[Core], T]) -> T:
        """`what(core)`, where the state does not change meanwhile. It only reads and is quick (`horae/views/`)."""
        return self._mail.ask(lambda: what(self._core))

    def decisions(self, limit: int = 100) -> tuple[Event, ...]:
        """The newest decisions, newest first."""
        return self._journal.history(kinds=[Kind.DECIDED], limit=limit, newest_first=True)

    def decision(self, pool: str) -> Decision | None:
        """The pool's newest decision, whole; None before the first."""
        return self._mail.ask(lambda: self._core.decisions.get(pool))

    def snapshot(self, pool: str) -> Snapshot:
        """What the pool's policy would be asked now. Raises TryLater before the first look."""

        def picture() -> Snapshot:
            found = self.config.pool(pool)
            if found is None:
                names = ", ".join(p.name for p in self.config.pools)
                raise BadInput(f"there is no pool {pool}", field="pool", value=pool, remedy=f"one of {names}")
            if self._core.view is None:
                raise TryLater("the cluster was not looked at yet")
            return ask(self._core.ledger, found, self._core.view, self._core.apps).snapshot

        return self._mail.ask(picture)

    def hides(self) -> tuple[str, ...]:
        """What the cluster hides of one user's from the others. Nobody has asked it before the first look: then all."""
        core = self._core
        return core.capabilities.hides if core.view is not None else ("jobs",)

    def read_log(self, job: JobId, offset: int, caller: Requester, limit: int = 1 << 20) -> LogChunk:
        """A job's output; nothing of one that the cluster does not know yet. Raises NoSuchJob, NotAllowed, and what
        the port raises."""

        def known() -> bool:
            record = self._record(job)
            authority.may_act_on(caller, record, self.config)
            return record.shown

        if not self._mail.ask(known):
            return LogChunk(b"", offset)
        answer: Future[LogChunk] = Future()

        def read() -> None:
            try:
                answer.set_result(self._port.read_log(job, offset, limit))
            except Exception as error:  # noqa: BLE001  (it is the caller's)
                answer.set_exception(error)

        self._give("executor", read)
        try:
            return answer.result(PATIENCE_S)
        except TimeoutError:
            raise TryLater("the cluster is slow to answer") from None

    def _record(self, job: JobId) -> JobRecord:
        record = self._core.ledger.jobs.get(job)
        if record is None:
            raise NoSuchJob(job)
        return record


def _came(asked: queue.SimpleQueue[int], within_s: Seconds) -> bool:
    """Whether a signal to stop has come."""
    try:
        asked.get(timeout=within_s)
    except queue.Empty:
        return False
    return True
