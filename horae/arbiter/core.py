"""The arbiter's state machine: events in, instructions out. One thread, no cluster, no policy, no waiting.

    tick   -> LookNow                      (or: submit what is new first, then look)
    looked -> Ask(question) a pool | Act   (the journal takes what was seen)
    judged -> Act                          (the journal takes the decision, then the intents)
    acted  -> nothing                      (the journal takes the outcomes; the next tick looks again)

Whoever drives it carries the instructions out and brings the results back: `service.py` with threads, a test in
one line. Everything it must not forget is in the journal; what it keeps beside it may be lost at any moment.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import horae
from horae.arbiter import round
from horae.arbiter.admit.models import Models
from horae.arbiter.decide import aside, evidence, offers
from horae.arbiter.decide.album import Album, SnapshotSources
from horae.arbiter.decide.policy_runner import Answer, Question
from horae.arbiter.decide.snapshot import Apps
from horae.arbiter.execute import outcomes
from horae.arbiter.execute.actions import Actions
from horae.arbiter.execute.executor import Beat, Claim, Done, Look, Op
from horae.arbiter.execute.outcomes import Retries
from horae.arbiter.execute.plan import PlanStep
from horae.arbiter.modes import acts_anywhere, mode_of
from horae.arbiter.observe import absences, budgets, feedback, recovery
from horae.arbiter.observe.reconcile import LastSeen, notice
from horae.arbiter.observe.unused import UnusedWatch
from horae.arbiter.occasions import Occasions
from horae.arbiter.standing import grant_stands, strays
from horae.config import Config, Mode, Pool, pools_by_node
from horae.journal import Draft, Journal, JournalStopped, Ledger, events
from horae.journal.form import Kind
from horae.journal.measured import Measurement
from horae.port import Capabilities, JobId, JobState, SiteTenant, TryLater, backoff_s
from policy import catalogue
from policy.model import Beyond, Decision, Seconds


@dataclass(frozen=True, slots=True)
class LookNow:
    """Observe the cluster, and read logs."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Put this question to the pool's policy."""

    question: Question


@dataclass(frozen=True, slots=True)
class Act:
    """Carry these out, in order; what does not fit into the time is left."""

    ops: tuple[Op, ...]
    budget_s: Seconds


Instruction = LookNow | Ask | Act


class Stage(Enum):
    IDLE = "idle"
    CLAIMING = "claiming"
    SUBMITTING = "submitting"
    LOOKING = "looking"
    JUDGING = "judging"
    ACTING = "acting"
    OVER = "over"  #: another arbiter has the cluster


#: Events after which a policy may decide otherwise.
_DECISIVE = frozenset({
    Kind.ADOPTED, Kind.RESPECIFIED, Kind.SEEN, Kind.MISSING, Kind.CAPPED, Kind.AVOIDED,
    Kind.HELD, Kind.UNHELD, Kind.CANCEL_ASKED, Kind.ENDED, Kind.MODE, Kind.MAINTENANCE,
    Kind.PRIORITY,
})  # fmt: skip
#: The alert of a round that was given up, and of a disk that is nearly full.
BUG, DISK = "bug", "disk"
#: How often a journal that stopped is tried again.
PROBE_S = 5.0


class Core:
    def __init__(self, config: Config, journal: Journal, models: Models, apps: Apps = round.no_apps) -> None:
        self.config, self.journal, self.models, self.apps = config, journal, models, apps
        self._given, self._site = config, tuple[SiteTenant, ...]()  #: as the file says; tenants as the cluster says
        self.stage = Stage.IDLE
        self.stalled: str | None = None  #: why the journal takes nothing; nothing is done meanwhile
        self.token: str | None = None
        self.view: SnapshotSources | None = None  #: of the newest look
        self.capabilities = Capabilities(cluster=f"{config.cluster.adapter} (not looked at yet)")
        self.fresh: dict[JobId, Measurement] = {}
        self.decisions: dict[str, Decision] = {}  #: newest of each pool, whole
        self.plans: dict[str, tuple[PlanStep, ...]] = {}
        self.rounds = 0
        self.actions = Actions(config)
        self._eyes, self._retries, self._unused = LastSeen(), Retries(), UnusedWatch()
        self._tried: dict[JobId, feedback.Tried] = {}
        self._measured_s: dict[JobId, Seconds] = {}
        self._occasions = Occasions(config)
        self._next_s = 0.0  #: when the next round is due
        self._began_s, self._free_s = 0.0, float("-inf")  #: when the last one began; none follows it before
        self.awaited = False  #: whether something was asked to leave, and others wait for its GPUs
        self._questions: dict[str, Question] = {}
        self._albums: dict[str, Album] = {}
        self._look_failed = 0
        self._confirmed = self._diagnosed = False
        self._claim_shown: str | None = None
        self._claimed_s = 0.0
        self._bytes_checked_s = 0.0
        how = "unreadable, started anew" if journal.quarantined else "new" if journal.new else "continued"
        version, host = horae.__version__, socket.gethostname()
        origin = journal.clock.origin
        self.write([events.Opened(version=version, host=host, pid=os.getpid(), how=how, origin=origin)])

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    def now_s(self) -> Seconds:
        return self.journal.clock.now_s()

    # --- journal ------------------------------------------------------------------------------------------

    def write(self, drafts: Iterable[Draft], *, durable: bool = False) -> None:
        """Append, and note which pools have something to decide about. Raises JournalStopped."""
        for event in self.journal.append(drafts, durable=durable):
            if event.kind in _DECISIVE or event.kind is Kind.SUBMITTED:
                record = self.ledger.jobs.get(event.job or "")
                pool = event.pool or (record.pool if record is not None else None)
                if pool is not None:
                    self._occasions.change([pool])

    def wake(self) -> None:
        """Something happened: a round is due as soon as what happens with it has settled."""
        self._next_s = min(self._next_s, self.now_s() + self.config.rounds.debounce_s)

    def told(self) -> None:
        """The cluster tells of something, which has settled (`observe/news.py`): it is looked at at once. But rounds
        take no more than half of the time."""
        self._next_s = min(self._next_s, max(self.now_s(), self._free_s))

    def next_s(self) -> Seconds:
        """When `tick` has something to do."""
        return self._next_s

    def _forget_what_is_not_on_record(self) -> None:
        """A round ended in the middle: what it saw or decided may not be in the journal, so all is looked at anew."""
        self._eyes, self._tried, self._measured_s, self._questions = LastSeen(), {}, {}, {}
        self._occasions.change_all(self.config)
        self.stage = Stage.IDLE

    def _stall(self, error: JournalStopped) -> list[Instruction]:
        self._forget_what_is_not_on_record()
        self.stalled = error.text
        self._next_s = self.now_s() + PROBE_S
        return []

    def give_up_round(self, why: str, pause_s: Seconds) -> list[Instruction]:
        """Something failed in a way it should not: nothing more is done in this round, and an operator is told."""
        self._forget_what_is_not_on_record()
        self._next_s = self.now_s() + pause_s
        try:
            self.write([events.Alerted(BUG, why, "please report it, with the log; the arbiter tries again")])
        except JournalStopped as error:
            return self._stall(error)
        return []

    # --- the round ----------------------------------------------------------------------------------------

    def tick(self) -> list[Instruction]:
        """Begin a round if one is due."""
        if self.stage is not Stage.IDLE or self.now_s() < self._next_s:
            return []
        try:
            return self._begin()
        except JournalStopped as error:
            return self._stall(error)

    def _begin(self) -> list[Instruction]:
        if self.stalled is not None:  # is there room again?
            self.write([events.Alerted("journal", self.stalled), events.Cleared("journal")], durable=True)
            self.stalled = None
        step_s = self.journal.clock.stepped()
        if step_s is not None:
            self.write([events.ClockStepped(step_s)])
        self.rounds += 1
        self._began_s = self.now_s()
        self._watch_disk()
        if self._in_charge():
            ops = self.actions.submissions(self.ledger, self._retries, self.now_s())
            if ops:
                self.write(self.actions.intents(self.ledger, ops), durable=True)
                self.stage = Stage.SUBMITTING
                return [Act(tuple(ops), self.config.rounds.act_s)]
        return self._look()

    def _watch_disk(self) -> None:
        """Say that the disk of the state is nearly full while it is; rounds go on in the journal's own room."""
        room, told = self.journal.room(), self.ledger.alerts.get(DISK)
        if not room.low:
            self.write([events.Cleared(DISK)] if told is not None else [])
            return
        folder = self.config.state_dir
        text = f"the disk of {folder} is nearly full: what runs goes on, but "
        text += "what needs room waits" if room.for_jobs else "no new job is taken, and what needs room waits"
        if told is None or told.text != text:
            remedy = f"see who fills it (`du -xh --max-depth=2 {folder}`, job folders too) and free space: all goes on "
            remedy += "by itself; for good, give users' job folders a file system of their own, or quotas"
            self.write([events.Alerted(DISK, text, remedy)])

    def _look(self) -> list[Instruction]:
        self.stage = Stage.LOOKING
        return [LookNow()]

    def _in_charge(self) -> bool:
        return self._confirmed and acts_anywhere(self.ledger, self.config)

    def looked(self, look: Look) -> list[Instruction]:
        try:
            return self._looked(look)
        except JournalStopped as error:
            return self._stall(error)

    def _looked(self, look: Look) -> list[Instruction]:
        if look.observation is None:
            return self._blind(look)
        self._look_failed = 0
        observation, now_s = look.observation, self.now_s()
        self.capabilities = look.capabilities or self.capabilities
        if observation.tenants != self._site:
            self._site, self.config = observation.tenants, self._given.knowing(observation.tenants)
            self._occasions.change_all(self.config)
        pools = pools_by_node(self.config, (n.name for n in observation.nodes))
        can = self.capabilities
        view = SnapshotSources(
            observation,
            pools,
            can.limits,
            self.config,
            now_s,
            self.fresh,
            cpus_per_gpu=can.cpus_per_gpu,
            memory_per_gpu=can.memory_per_gpu,
        )
        drafts: list[Draft] = [events.Cleared("cluster")] if "cluster" in self.ledger.alerts else []
        if not self._diagnosed or self._overtaken(observation.claim):
            why = recovery.diagnose(self.journal, observation)
            if why is not None:
                drafts += recovery.recover(self.journal, observation, why)
        drafts += notice(self.ledger, observation, self._eyes, config=self.config, pools=pools, now_s=now_s)
        self.write(drafts, durable=not self._diagnosed)
        self._diagnosed, self._claim_shown = True, observation.claim
        away = absences.absences(self.ledger, self.config, observation, now_s, self.journal.clock.wall_s())
        self.view = view = replace(view, away=away, strays=strays(self.ledger, observation), beyond=self._budgets())
        if (claim := self._claim(observation.claim)) is not None:
            return claim
        self.fresh.update(look.measured)
        found, news = feedback.measured(self.ledger, look.measured, self._measured_s, self.config, now_s)
        self._occasions.change(self.ledger.jobs[job].pool for job in news)
        found += feedback.blocked(self.ledger, self.config, now_s, self._tried)
        found += feedback.out_of_time(self.ledger, now_s)
        found += feedback.gone(self.ledger, self.config, now_s, owns_submission=self.capabilities.owns_submission)
        found += self._unused.look(self.ledger, observation, self.config, now_s, fresh=self.fresh, read_s=look.read_s)
        self.write(found)
        self._questions = {p.name: q for p in self.config.pools if (q := self._due(p, view)) is not None}
        if not self._questions:
            return self._act()
        self.stage = Stage.JUDGING
        return [Ask(question) for question in self._questions.values()]

    def _budgets(self) -> dict[str, Beyond]:
        """Whose budget is used up, and what they may have; said once each."""
        found = self.budgets()
        if drafts := budgets.told(self.ledger, found):
            self.write(drafts, durable=True)
            self._occasions.change_all(self.config)
        return {name: standing.then for name, standing in found.items() if standing.over}

    def budgets(self) -> dict[str, budgets.BudgetStanding]:
        return budgets.standings(self.ledger, self.config, self.now_s(), self.journal.clock.wall_s())

    def _blind(self, look: Look) -> list[Instruction]:
        """The cluster cannot be read: nothing is done, and looked again, later each time."""
        assert look.error is not None
        self._look_failed += 1
        old = self.ledger.alerts.get("cluster")
        if old is None or old.text != look.error.text:
            self.write([events.Alerted("cluster", look.error.text, getattr(look.error, "remedy", ""))])
        self.stage = Stage.IDLE
        wait_s = look.error.retry_after_s if isinstance(look.error, TryLater) else self.config.rounds.tick_s
        self._next_s = self.now_s() + max(wait_s, backoff_s(self._look_failed, 0.5, 60.0))
        return []

    def _overtaken(self, shown: str | None) -> bool:
        """Whether another arbiter claimed the cluster since we looked last, and our own claim did not come through: who
        claims it again knows less than is true."""
        return not self._confirmed and shown not in (self._claim_shown, self.token)

    def _claim(self, shown: str | None) -> list[Instruction] | None:
        """None: the round may go on. Before anything is changed in the cluster, it must show our claim."""
        now_s = self.now_s()
        if not acts_anywhere(self.ledger, self.config):
            return None
        if self.token is not None and shown == self.token:
            self._confirmed = True
            return None
        if self.token is None or (not self._confirmed and now_s - self._claimed_s >= self.config.rounds.repeat_s):
            if self.token is None:
                self.token = uuid.uuid4().hex
                self.write([events.Claimed(self.token)], durable=True)
            self._claimed_s = now_s
            self.stage = Stage.CLAIMING
            return [Act((Claim(self.token),), self.config.rounds.act_s)]
        if self._confirmed:
            self.write([events.StoodDown(shown or "nobody")], durable=True)
            self.stage, self._next_s = Stage.OVER, float("inf")
            return []
        self.stage = Stage.IDLE
        self._next_s = now_s + self.config.rounds.busy_s
        return []

    def asking(self, pool: str) -> bool:
        """Whether its policy is thinking."""
        return pool in self._questions

    def _due(self, pool: Pool, view: SnapshotSources) -> Question | None:
        """What to ask the pool's policy now; where apps' own agents bid, they are offered what is free first."""
        asks, offer = self._occasions.due(self.ledger, self.config, pool, view), self.ledger.pool(pool.name).offer
        if not mode_of(self.ledger, pool).decides or (offer is None and not asks):
            return None
        if offer is not None and not offers.ripe(offer, view.now_s):
            return None
        question = self._question(pool, view)
        if offer is None and (draft := offers.opened(self.ledger.pool(pool.name), question, self.config)) is not None:
            self.write([draft], durable=True)
            return None
        return question

    def _question(self, pool: Pool, view: SnapshotSources) -> Question:
        self._occasions.asked(pool.name, view.now_s)
        album = self._albums.setdefault(pool.name, Album())
        question = round.question(self.ledger, pool, view, self.apps, album)
        if question.unfit:
            self.write(aside.drafts(self.ledger, question.unfit, view.now_s))
        return offers.answered(question, self.ledger.pool(pool.name))

    def judged(self, pool_name: str, answer: Answer) -> list[Instruction]:
        try:
            return self._judged(pool_name, answer)
        except JournalStopped as error:
            return self._stall(error)

    def _judged(self, pool_name: str, answer: Answer) -> list[Instruction]:
        question = self._questions.pop(pool_name, None)
        if question is None:
            return []  # the round was given up meanwhile
        pool = self.config.pool(pool_name)
        assert pool is not None and self.view is not None
        if answer.aside:  # before the admission: it is about the others only
            kept = evidence.keep(self.config.state_dir, question)
            self.write(aside.drafts(self.ledger, answer.aside, self.now_s(), pool.policy, _again(kept, pool.policy)))
            question = replace(question, snapshot=aside.without(question.snapshot, answer.aside))
        admitted = round.admission(self.ledger, pool, self.view, question, answer, self.models)
        self._occasions.vetoed(pool_name, (v.until_s for v in admitted.vetoes.values() if v.until_s is not None))
        what = f"policy:{pool_name}"
        drafts = list(admitted.drafts)
        if (settled := offers.settled(self.ledger.pool(pool_name), question, answer, admitted.targets)) is not None:
            drafts.append(settled)
        if answer.decision is not None:
            self.decisions[pool_name] = answer.decision
            drafts += [events.Cleared(what)] if what in self.ledger.alerts else []
        else:
            old = self.ledger.alerts.get(what)
            if old is None or old.text != answer.why_not:
                kept = evidence.keep(self.config.state_dir, question)
                drafts.append(
                    events.Alerted(what, answer.why_not, f"the previous allocation stands{_again(kept, pool.policy)}")
                )
        self.write(drafts)
        return [] if self._questions else self._act()

    def _act(self) -> list[Instruction]:
        """Compare with the targets on record, journal the intents, and hand out what can be done now."""
        assert self.view is not None
        ops: list[Op] = []
        if self._in_charge():
            ops += self.actions.follow_ups(self.ledger, self.view, self._retries)
        for pool in self.config.pools:
            self.plans[pool.name], more = self.actions.of_pool(
                self.ledger, pool, self.view, self.capabilities, self._retries
            )
            if self._in_charge():
                ops += more
        drafts = self.actions.advice(self.ledger, self.plans)
        intents = self.actions.intents(self.ledger, ops)
        self.write([*drafts, *intents], durable=bool(intents))
        # Hooks hold new jobs while it beats: only where somebody will start them.
        if self._in_charge() and any(mode_of(self.ledger, pool) is Mode.ENFORCE for pool in self.config.pools):
            ops.append(Beat())
        if not ops:
            return self._over()
        self.stage = Stage.ACTING
        return [Act(tuple(ops), self.config.rounds.act_s)]

    def acted(self, done: Sequence[Done]) -> list[Instruction]:
        try:
            drafts = outcomes.outcomes(self.ledger, done, self._retries, self.config.rounds, self.now_s())
            # What a job that is put aside was to get is to be decided about anew.
            self._occasions.change(self.ledger.jobs[d.job].pool for d in drafts if isinstance(d, events.PutAside))
            self.write([*drafts, *outcomes.over(self.ledger, self._retries, self.now_s())])
            if self.stage in (Stage.SUBMITTING, Stage.CLAIMING):
                return self._look()
            return self._over(busy=any(not isinstance(d.op, Beat) for d in done))
        except JournalStopped as error:
            return self._stall(error)

    def _over(self, *, busy: bool = False) -> list[Instruction]:
        """The round is over: when is the next?"""
        if BUG in self.ledger.alerts:  # a whole round went well: what failed does not any more
            self.write([events.Cleared(BUG)])
        self.stage, now_s, rounds = Stage.IDLE, self.now_s(), self.config.rounds
        self._free_s = now_s + min(now_s - self._began_s, rounds.debounce_s)
        self.awaited = any(r.stop_asked_s is not None for r in self.ledger.in_motion())
        wait_s = rounds.tick_s
        if busy:
            wait_s = min(rounds.debounce_s, rounds.busy_s)
        elif self._under_way(now_s):
            wait_s = rounds.busy_s
        self._next_s = min(
            now_s + wait_s, max(offers.next_s(self.ledger, self.config, now_s), now_s + rounds.debounce_s)
        )
        self._keep_bounded(now_s)
        return []

    def _under_way(self, now_s: Seconds) -> bool:
        """Whether the cluster is about to show what was asked of it. What it did not show for long did not happen, and
        what is not handed in is never shown."""
        settle_s = self.config.rounds.settle_s
        acting = {p.name for p in self.config.pools if mode_of(self.ledger, p).acts}
        return any(
            record.state in (JobState.STARTING, JobState.STOPPING)
            or grant_stands(record, now_s, settle_s)
            or record.stop_asked_s is not None
            or (not record.shown and record.pool in acting and now_s - (record.submit_sent_s or now_s) < settle_s)
            for record in self.ledger.in_motion()
        )

    def _keep_bounded(self, now_s: Seconds) -> None:
        history = self.config.history
        grown = self.journal.uncovered
        due = grown >= history.compact_events
        if not due and now_s - self._bytes_checked_s >= 60.0:
            self._bytes_checked_s = now_s
            self.journal.refill()
            due = grown >= 1000 and self.journal.size()[1] >= history.compact_bytes
        if due:
            shown = {j.id for j in self.view.observation.jobs} if self.view is not None else set()
            self.journal.compact(history_s=history.keep_s, forget_after_s=history.forget_s, keep=shown)
            self._retries.forget(j for j in self._measured_s if j not in self.ledger.jobs)
            for memory in (self._measured_s, self.fresh, self._tried):
                _forget(memory, self.ledger)


def _again(kept: Path | None, policy: str) -> str:
    named = f" --policy {policy}" if catalogue.file(policy) is not None else ""  # a file runs for whoever names it
    return f"; `horae decide {kept}{named}` asks it again" if kept is not None else ""


def _forget(
    memory: dict[JobId, Seconds] | dict[JobId, Measurement] | dict[JobId, feedback.Tried], ledger: Ledger
) -> None:
    for job in [job for job in memory if job not in ledger.jobs]:
        del memory[job]
