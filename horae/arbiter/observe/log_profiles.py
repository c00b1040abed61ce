"""The profiler behind the arbiter: any training log in, progress, speed, loss and slowdown out.

Each look reads the new bytes of a log (`LogReader`, which takes them in any pieces) and asks how far the job is; what
its lines measure is worked out again as the job has run for a share longer (`WORTH`), since that takes some times as
long. What was measured at one placement is a stretch; it goes to the store of its model key, and what comes back is
merged over all jobs of the key: the job's rates, its S by span. Claims are held against the clock and against the
key's other jobs before they are used. What a log leaves open is said in the notes, with how to print it.

Kept in the journal with the measurement (`Measurement.profiler`): the key, the job's own stretches, and the reader's
state, packed, made at `Measurement.offset`. After a restart reading goes on there; when the rules have changed since,
or the log has, it starts again at its beginning.

Units of progress. Iterations where the log counts them over the run or per epoch; else epochs: `done`, `total` and
the rates are in the same unit, whichever it is.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from horae.arbiter.observe import run_numbers
from horae.arbiter.observe.measurements import LOSS_POINTS, NEVER_S, ReadLog, due
from horae.arbiter.observe.model_key import model_key
from horae.journal.codec import restore
from horae.journal.measured import Known, Measurement
from horae.port import JobId, JobState, Observation, ObservedJob, PortError
from horae.spec import JobSpec
from policy.model import Gpus, GpuType, LossForecast, Node, NodeName, Provenance, Seconds, Slowdown
from profiler.estimates.iteration import Timing, timing
from profiler.estimates.loss import Forecast, forecast
from profiler.estimates.profiles import Store, lacks
from profiler.estimates.scaling import Source
from profiler.estimates.stretch import Span, Stretch
from profiler.estimates.trust import PEER_FACTOR, Claim, Verdict, Watched, judge
from profiler.model import Run
from profiler.rules.book import RuleBook, load
from profiler.runs import persistence as reader_state
from profiler.runs.reader import LogReader
from profiler.runs.sane import sane

#: Points that a reader keeps of one run.
POINTS = 256
#: Seconds a round may take; logs that are left over come first in the next.
BUDGET_S = 1.0
#: Bytes read of one log in one look; the rest waits for the next.
BYTES_A_LOOK = 8 << 20
#: After so many the time is looked at: lines of some shapes cost a thousand times what others do.
PIECE = 32 << 10
#: What a log measures is worked out anew when the job has run for this share longer, at the latest after so long.
WORTH, WORKED_OUT_S = 0.05, 300.0
#: A packed state is renewed this often, and when a job leaves.
STATE_S = 300.0
#: Stretches of a job that are kept with its measurement: the newest, where it was resized more often.
OWN_STRETCHES = 64
_BASE64 = "base64:"  #: before a reader's state; by versions before in base 85, which takes forty times as long
#: Forecasts made in one round; a curve is forecast again when it reaches so many times as far, or not so far any more.
FORECASTS_A_ROUND = 20
FURTHER = 1.25

#: What a reader may raise that has a fault. Whatever a log says, others' rounds go on.
FAULTS = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)
_LOGGER = structlog.get_logger("horae.profiles")

SpecOf = Callable[[JobId], JobSpec | None]


@dataclass(slots=True)
class _Log:
    """What is known of one job's log."""

    reader: LogReader
    offset: int = 0
    identity: str = ""
    read_s: Seconds = NEVER_S
    tried_s: Seconds = NEVER_S
    behind: bool = False  #: there was more than there was time for
    packed_s: Seconds = NEVER_S
    worked_out_s: Seconds = NEVER_S  #: when its lines were last worked out, not only its progress read
    believed: bool = True  #: whether its progress was then
    by_epoch: bool = False  #: the unit that it was counted in then
    key: str = ""
    key_from: str = ""
    tenant: str = ""
    epoch: int = 0  #: the start that `from_line` and `watched` belong to
    from_line: int = 0  #: lines up to here were written at another placement
    watched: tuple[Seconds, float] | None = None  #: (when, progress) at the first progress of this start
    loss: tuple[tuple[float, float], ...] = ()  #: of the runs before the one that is being read
    ended_line: int = 0  #: up to where those were read
    forecast: Forecast | None = None
    forecast_to: float = 0.0  #: the position that the curve had reached then
    own: dict[tuple[int, str, Gpus, Span], Stretch] = field(default_factory=dict)
    measured: Measurement = field(default_factory=Measurement)


class LogProfiles:
    """`Profiles` by the profiler. One owner; every `every_s` a running job is looked at.

    `spec_of` tells a job's specification where the cluster does not (the journal's).
    """

    def __init__(
        self,
        every_s: Seconds = 10.0,
        *,
        book: RuleBook | None = None,
        spec_of: SpecOf | None = None,
        store: Store | None = None,
        budget_s: Seconds = BUDGET_S,
    ) -> None:
        self._every_s, self._budget_s = every_s, budget_s
        self._book = book or load()
        self._spec_of = spec_of
        self.store = store or Store()
        self._logs: dict[JobId, _Log] = {}
        self._forecasts = 0

    # --- the hook ------------------------------------------------------------------------------------------

    def restore(self, known: Mapping[JobId, Measurement]) -> None:
        for job, measured in known.items():
            saved = measured.profiler
            log = _Log(self._reader(saved.get("reader")), measured=measured, key=str(saved.get("key", "")))
            log.loss, log.key_from = measured.loss, measured.key_from
            if saved.get("reader") and log.reader.bytes:
                log.offset, log.identity = measured.offset, measured.identity
                log.from_line = log.reader.lines  # which start is running now is not known yet
            for stretch in _stretches(saved.get("stretches")):
                log.own[stretch.start, *stretch.place] = stretch
                self.store.record(log.key, stretch)
            self._logs[job] = log

    def read_s(self) -> Mapping[JobId, Seconds]:
        return {job: log.read_s for job, log in self._logs.items() if log.read_s > NEVER_S}

    def update(self, observation: Observation, read_log: ReadLog) -> Mapping[JobId, Measurement]:
        now_s, nodes = observation.now_s, {n.name: n for n in observation.nodes}
        self._forecasts = FORECASTS_A_ROUND
        changed: dict[JobId, Measurement] = {}
        grown: list[tuple[ObservedJob, Measurement]] = []  #: each with what was known of it before
        began = time.monotonic()
        for job in self._waiting(observation):
            if time.monotonic() - began > self._budget_s:
                break
            log = self._logs.get(job.id)
            if log is None:
                log = self._logs[job.id] = _Log(LogReader(self._book, POINTS))
            log.tried_s, before = now_s, log.measured
            # No log takes all the time that there is for them.
            until = time.monotonic() + self._budget_s / 2
            try:
                if self._look(log, job, read_log, nodes, now_s, until):
                    grown.append((job, before))
            except PortError:
                continue  # no log now; the next round asks again
            except FAULTS as error:
                log = self._logs[job.id] = self._begun_anew(log, error)
                changed[job.id] = log.measured
            if not log.behind:  # else it is due again at once, behind those who waited longer
                log.read_s = now_s
        for job, before in grown:  # once all have told: the jobs of a sweep share what is worked out of them together
            found = self._concluded(job, now_s)
            if found != before:
                changed[job.id] = found
        known = {job.id for job in observation.jobs}
        for gone in [job for job in self._logs if job not in known]:
            del self._logs[gone]
        return changed

    def _waiting(self, observation: Observation) -> list[ObservedJob]:
        """Whose logs are due, the longest untried first."""
        waiting = due(observation, {job: log.read_s for job, log in self._logs.items()}, self._every_s)
        return sorted(waiting, key=lambda job: self._logs[job.id].tried_s if job.id in self._logs else NEVER_S)

    def _begun_anew(self, log: _Log, error: Exception) -> _Log:
        """Behind the piece that our reader failed at: a fault of ours, and none but this job's curve is to bear it."""
        _LOGGER.error("a log cannot be read", model_key=log.key, error=repr(error)[:500])
        note = f"a part of its log was left out: the reader failed there ({type(error).__name__})"
        measured = replace(log.measured, notes=(note,))
        return replace(
            log,
            reader=LogReader(self._book, POINTS),
            loss=log.measured.loss,
            from_line=0,
            ended_line=0,
            watched=None,
            measured=measured,
        )

    def key_of(self, job: JobId) -> str:
        """The model key that a job's measurements are kept under; its own name before anything was read."""
        log = self._logs.get(job)
        return log.key if log is not None and log.key else f"job/{job}"

    # --- one look ------------------------------------------------------------------------------------------

    def _look(
        self,
        log: _Log,
        job: ObservedJob,
        read_log: ReadLog,
        nodes: Mapping[NodeName, Node],
        now_s: Seconds,
        until: Seconds,
    ) -> bool:
        """Whether its log has grown; then what it tells is read, and stands in the store."""
        grown = self._read(log, job, read_log, until)
        if job.epoch != log.epoch:
            # What this look has read may be of either start: times are taken from the lines after it.
            first = job.epoch == 1 and log.epoch == 0
            log.epoch, log.from_line, log.watched = job.epoch, 0 if first else log.reader.lines, None
        if not grown:
            return False
        runs = log.reader.runs()
        self._take_key(log, job.id, self._spec(job))
        if not self._is_worth(log, job, now_s) and _goes_on(log, runs):
            return True
        log.worked_out_s = NEVER_S if log.behind else now_s
        for ended in runs[:-1]:
            if ended.last_line > log.ended_line:  # a start that trains some steps again is a run of its own
                log.ended_line = ended.last_line
                log.loss = run_numbers.thinned(run_numbers.merged(log.loss, sane(ended)))
        if runs:
            self._measure(log, job, sane(runs[-1]), nodes, now_s)
        else:
            log.measured = replace(log.measured, notes=lacks(progress=False))
        return True

    def _is_worth(self, log: _Log, job: ObservedJob, now_s: Seconds) -> bool:
        """Whether what its lines measure may have changed by as much as it takes to work it out."""
        if job.state is not JobState.RUNNING or job.epoch != log.measured.epoch:
            return True
        before_s = now_s - log.worked_out_s  # below 0: the clock was set back
        return before_s < 0 or before_s >= min(WORTH * (now_s - job.since_s), WORKED_OUT_S)

    def _spec(self, job: ObservedJob) -> JobSpec | None:
        return job.spec or (self._spec_of(job.id) if self._spec_of is not None else None)

    def _concluded(self, job: ObservedJob, now_s: Seconds) -> Measurement:
        """What is measured of it, with what all jobs of its key have shown."""
        log = self._logs[job.id]
        try:
            self._conclude(log, job, now_s)
        except FAULTS as error:
            log = self._logs[job.id] = self._begun_anew(log, error)
        return log.measured

    def _conclude(self, log: _Log, job: ObservedJob, now_s: Seconds) -> None:
        """Its state is kept, too, now and then."""
        log.measured = replace(log.measured, **self._shared(log, self._spec(job)))
        if abs(now_s - log.packed_s) >= STATE_S or job.state is not JobState.RUNNING:
            log.packed_s = now_s
            log.measured = replace(log.measured, offset=log.offset, identity=log.identity, profiler=self._packed(log))

    def _take_key(self, log: _Log, job: JobId, spec: JobSpec | None) -> None:
        """The key that its specification says now; what was kept under another one moves to it."""
        key = self.key_of(job)
        if spec is not None:
            key = model_key(spec)
            log.tenant = spec.tenant or spec.owner
        if log.key and key != log.key:
            self.store.rename(log.key, key, job)
            log.key_from = "corrected" if spec is not None and spec.model else "derived"
        elif not log.key_from:
            log.key_from = "given" if spec is not None and spec.model else "derived"
        log.key = key

    def _read(self, log: _Log, job: ObservedJob, read_log: ReadLog, until: Seconds) -> bool:
        """Whether there was anything new. `until` on the monotonic clock; the rest then waits for the next look."""
        start = log.reader.bytes
        log.behind = True
        while log.reader.bytes - start < BYTES_A_LOOK:
            chunk = read_log(job.id, log.offset)
            if log.identity and chunk.identity != log.identity:
                # Another file: what was measured stays, reading begins anew.
                log.loss = log.measured.loss
                log.reader, log.from_line, log.ended_line, start = LogReader(self._book, POINTS), 0, 0, 0
                if chunk.next_offset != len(chunk.data):  # it is longer than what was read of the old one
                    chunk = read_log(job.id, 0)
            log.identity, log.offset = chunk.identity, chunk.next_offset - len(chunk.data)
            for at in range(0, len(chunk.data), PIECE):
                piece = chunk.data[at : at + PIECE]
                log.offset += len(piece)  # before: a piece that the reader fails at is not read again
                log.reader.feed(piece)
                if time.monotonic() > until:
                    return log.reader.bytes != start
            if chunk.eof or not chunk.data:
                log.behind = False
                break
        return log.reader.bytes != start

    def _measure(self, log: _Log, job: ObservedJob, run: Run, nodes: Mapping[NodeName, Node], now_s: Seconds) -> None:
        progress = run_numbers.progress(run)
        done, total, by_epoch = progress if progress is not None else (log.measured.done, log.measured.total, False)
        here = run_numbers.since(run, log.from_line, sum(job.allocation.values()))
        times = timing(here)
        seconds = (times.epoch.median if times.epoch else None) if by_epoch else run_numbers.seconds(times)
        if log.watched is None or done < log.watched[1] or now_s < log.watched[0]:  # the clock was set back
            log.watched = (now_s, done)
        moved = done != log.measured.done
        place = run_numbers.place(job.allocation, nodes)
        watched = Watched(now_s - log.watched[0], log.watched[1]) if moved else None
        verdict = self._judged(Claim(done, total, seconds), watched, log.key, job.id, place)
        if place is not None and verdict.rate and (seconds is not None or moved):
            self._record(log, job, place, verdict, times, run, now_s)
        curve = run_numbers.merged(log.loss, run)
        log.believed, log.by_epoch = verdict.progress_believed, by_epoch
        log.measured = replace(
            log.measured,
            done=done if verdict.progress_believed else log.measured.done,
            total=total,
            epoch=job.epoch,
            loss=curve[-LOSS_POINTS:],
            loss_forecast=self._forecast(log, curve, total),
            notes=run_numbers.notes(run, curve, verdict, progress, seconds is not None),
        )

    def _judged(
        self, claim: Claim, watched: Watched | None, key: str, job: JobId, place: tuple[GpuType, Gpus, Span] | None
    ) -> Verdict:
        verdict = judge(claim, watched)
        if verdict.rate is None or place is None:
            return verdict
        # Where one of its likes comes near to it, no other is asked.
        slower = self.store.peers(key, *place[:2], but=job, below=verdict.rate / PEER_FACTOR)
        return judge(claim, watched, slower) if slower else verdict

    def _record(
        self,
        log: _Log,
        job: ObservedJob,
        place: tuple[GpuType, Gpus, Span],
        verdict: Verdict,
        times: Timing,
        run: Run,
        now_s: Seconds,
    ) -> None:
        if verdict.rate is None:
            return
        n, spread = run_numbers.samples(times) if verdict.claimed_used else (1, 0.1)
        gpu_type, gpus, span = place
        stretch = Stretch(
            job.id, gpu_type, gpus, span, 1 / verdict.rate, n, spread, run.batch_size, now_s, job.epoch, log.tenant
        )
        log.own[job.epoch, gpu_type, gpus, span] = stretch
        if len(log.own) > OWN_STRETCHES:
            del log.own[next(iter(log.own))]
        self.store.record(log.key, stretch)

    def _shared(self, log: _Log, spec: JobSpec | None) -> dict[str, Any]:
        """What all jobs of the key tell about this one."""
        wanted = {t: run_numbers.counts(s.measured, spec) for t, s in self.store.scaling(log.key).items()}
        tables = self.store.table(log.key, wanted)
        rates: dict[GpuType, dict[Gpus, float]] = {}
        provenance: dict[GpuType, Provenance] = {}
        for gpu_type, table in tables.items():
            told = {n: r for n, r in table.items() if r.source is not Source.LINEAR}
            rates[gpu_type] = {n: r.value for n, r in told.items()}
            fitted = any(r.source is Source.FIT for r in told.values())
            provenance[gpu_type] = Provenance.FIT if fitted else Provenance.MEASURED
        s = self.store.slowdown(log.key)
        values = {span: s[span].value for span in Span}
        told_s = Slowdown(values[Span.NODE], values[Span.RACK], values[Span.CLUSTER])
        places = {
            gpu_type: {n: Known(r.value, *r.interval, r.source.value) for n, r in table.items()}
            for gpu_type, table in tables.items()
        }
        return {
            "rates": rates,
            "provenance": provenance,
            "slowdown": told_s,
            "places": places,
            "key": log.key,
            "key_from": log.key_from,
        }

    def _forecast(self, log: _Log, curve: tuple[tuple[float, float], ...], total: float | None) -> LossForecast | None:
        reached = curve[-1][0] if curve else 0.0  # not how many points: a reader keeps so many and no more
        if self._forecasts > 0 and not log.forecast_to <= reached < FURTHER * log.forecast_to:
            self._forecasts -= 1
            log.forecast_to = reached
            log.forecast, _ = forecast(curve)
        made = log.forecast
        if made is None:
            return None
        level = made.iterations_to_level()
        relative = None
        if level is not None and level[0] > 0:
            relative = (level[1][0] / level[0], level[1][1] / level[0])
        return LossForecast(made.law, dict(made.fitted.parameters), relative)

    # --- what survives a restart ---------------------------------------------------------------------------

    def _packed(self, log: _Log) -> dict[str, Any]:
        text = json.dumps(reader_state.dump(log.reader), separators=(",", ":"))
        return {
            "key": log.key,
            "stretches": [s.to_dict() for s in log.own.values()],
            "reader": _BASE64 + base64.b64encode(zlib.compress(text.encode(), 6)).decode(),
        }

    def _reader(self, packed: object) -> LogReader:
        if isinstance(packed, str) and packed:
            try:
                digits = packed.removeprefix(_BASE64)
                decode = base64.b85decode if digits == packed else base64.b64decode
                saved = json.loads(zlib.decompress(decode(digits)))
                return reader_state.load(saved, self._book)
            except (*FAULTS, zlib.error):  # other rules, or not what was written: read again from the start
                return LogReader(self._book, POINTS)
        return LogReader(self._book, POINTS)


def _goes_on(log: _Log, runs: list[Run]) -> bool:
    """Whether it is the same training, further on; then that is taken, and nothing else of it."""
    if not log.believed or not runs or any(ended.last_line > log.ended_line for ended in runs[:-1]):
        return False
    progress = run_numbers.progress(sane(runs[-1]))
    if progress is None:
        return False
    done, total, by_epoch = progress
    same = by_epoch is log.by_epoch and total == log.measured.total and done >= log.measured.done
    if not same or not judge(Claim(done, total), None).progress_believed:
        return False
    log.measured = replace(log.measured, done=done)
    return True


def _stretches(saved: Any) -> list[Stretch]:
    """Those that can be read: another version may have written others."""
    found = []
    for item in saved or ():
        with suppress(ValueError):
            found.append(restore(Stretch, item))
    return found
