"""Where the time of an iteration can be read in a log: each source gives samples, none is judged here.

A sample is so many seconds an iteration over so many iterations. Ranks that print the same position are averaged; a
clock is read from one rank only. `iteration` chooses among the sources and holds them against each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from profiler.estimates.curves import Positions
from profiler.model import EpochTime, Kind, Pause, Point, Run

TICKS = 20  #: a clocked interval shorter than so many ticks of its clock is joined with the next
FEWEST_TICKS = 8  #: the same in a log that is shorter than that
TWO_CLOCKS_S = 30 * 86400.0  #: stamps further apart are of two clocks
FEWEST_LOSSES = 8  #: lines with a loss from which the clock is read from them alone
TORN = 2.0  #: two times of one step are far apart
LASTING = 1.5  #: the longest of the epochs whose elapsed time is their own is so many times the shortest
GROWING = 3  #: so many times of epochs may grow by chance
FALLS = 0.25  #: of the lines on which a time since a beginning may be lower than on the line before
FEWEST_EPOCHS = 3  #: intervals between the stamps of epochs by which a time of an epoch is judged
PARTLY = 4.0  #: so many times the training of an epoch an epoch may take, with all else that it holds
ROW_S = 0.5  #: rows of training that a table tells are further apart
MINUTE_S = 60.0  #: stamps may be of whole minutes
LATE = 1.5  #: of the steps between two losses the first may take; one that comes later than that was trained before
LEAST = 1e-9  #: positions nearer to each other are one
SHORTEST_S, LONGEST_S = 1e-9, 1e9  #: no iteration and no epoch is shorter or longer: such a number is of something else
GUESSED = 0.1  #: of an epoch's length that was not printed, at most this share may be guessed


@dataclass(frozen=True, slots=True)
class Sample:
    """`steps` iterations that end at position `at` took `seconds` each."""

    at: float
    seconds: float
    steps: float
    line: int


def _can_be(seconds: float) -> bool:
    """Whether so many seconds can be the time of an iteration or an epoch; a number that is none cannot."""
    return SHORTEST_S <= seconds <= LONGEST_S


def _train(run: Run) -> list[Point]:
    return [p for p in run.points if p.kind is Kind.TRAIN]


def _by_position(run: Run, rows: Iterable[tuple[Point, float]]) -> list[Sample]:
    """Mean over the points of one position, in order of the text; `steps` from the position before."""
    positions = Positions.of(run)
    cells: dict[float, list[tuple[float, int]]] = {}
    for order, (p, seconds) in enumerate(rows):
        at = positions(p)
        if _can_be(seconds):
            cells.setdefault(float(order) if at is None else at, []).append((seconds, p.line))
    ordered = [(at, fmean(s for s, _ in cell), cell[-1][1]) for at, cell in cells.items()]
    if not ordered:
        return []
    steps = [1.0] + [b - a for (a, _, _), (b, _, _) in pairwise(ordered)]
    typical = median([s for s in steps[1:] if s > LEAST] or [1.0])
    return [
        Sample(at, seconds, step if LEAST < step <= typical else typical, line)
        for (at, seconds, line), step in zip(ordered, steps, strict=True)
    ]


def printed(run: Run) -> list[Sample]:
    """Printed step times; else differences of a printed elapsed time; else running averages; else epochs' means."""
    train = [p for p in _train(run) if not p.from_bar]
    steps = _stepped(train)
    if steps:
        return _by_position(run, steps)
    clocked = [] if unit_unknown(run) else _differences(run, _elapsed(train))
    averages = [(p, p.step_s_average) for p in train if p.step_s_average is not None]
    if len(clocked) >= 3 or (clocked and not averages):
        return clocked
    # An average over everything so far forgets its start slowly: its later half tells the level.
    averaged = _by_position(run, averages)
    if averaged:
        return averaged[len(averaged) // 2 :]
    return _by_position(run, _stepped([p for p in run.points if p.kind is Kind.EPOCH and not p.from_bar]))


def torn(run: Run) -> tuple[float, float] | None:
    """The shortest and the longest of the times that one process tells of each step on lines of their own, where those
    are far apart: one of them is of something else, and nothing says which."""
    cells: dict[object, list[float]] = defaultdict(list)
    for p, seconds in _stepped(p for p in _train(run) if not p.from_bar):
        cells[p.epoch, p.iteration, p.rank].append(seconds)
    apart = [cell for cell in cells.values() if max(cell) > TORN * min(cell)]
    if 2 * len(apart) <= len(cells):
        return None
    return median(min(cell) for cell in apart), median(max(cell) for cell in apart)


def _stepped(points: Iterable[Point]) -> list[tuple[Point, float]]:
    return [(p, p.step_s) for p in points if p.step_s is not None]


def from_throughput(run: Run) -> list[Sample]:
    """Printed rates turned into times: iterations/s directly, samples/s by the batch over all ranks."""
    rows: list[tuple[Point, float]] = []
    averaged: list[tuple[Point, float]] = []
    ranks = run.ranks or 1
    for p in run.points:
        rate = p.throughput
        if rate is None or rate.value <= 0 or p.kind is Kind.VALIDATION:
            continue
        batch = 1.0 if rate.unit == "iterations/s" else (p.batch_size or run.batch_size)
        if rate.unit not in ("iterations/s", "samples/s") or batch is None:
            continue
        whole = rate.value * (ranks if rate.of_rank and rate.unit != "iterations/s" else 1)
        (averaged if rate.averaged or p.kind is Kind.EPOCH else rows).append((p, batch / whole))
    return _by_position(run, rows or averaged)


def from_elapsed(run: Run, bar: bool) -> list[Sample]:
    """Differences of the elapsed time that bars, or other lines, print: a clock for what the same lines say."""
    told = [p for p in _train(run) if p.elapsed_s is not None and p.iteration is not None and p.from_bar is bar]
    if not told or unit_unknown(run):
        return []
    rank = told[0].rank
    return _differences(run, _elapsed(p for p in told if p.rank == rank))


def _elapsed(points: Iterable[Point]) -> list[tuple[Point, float]]:
    return [(p, p.elapsed_s) for p in points if p.elapsed_s is not None]


def unit_unknown(run: Run) -> str:
    """Why a column of elapsed time without a unit is not read in seconds; "" where it is. Nobody has a row written so
    many times a second: it is of minutes, or of hours."""
    told = [seconds for _, seconds in _elapsed(_train(run))]
    apart = [b - a for a, b in pairwise(told) if b > a]
    if not run.elapsed_by or not apart or median(apart) >= ROW_S:
        return ""
    return f"{run.elapsed_by} grows by {median(apart):.4g} a row, in a unit that is not told: it is not used"


def _of_one_counter(points: list[Point]) -> list[Point]:
    """Those that tell a loss, where there are enough: other lines may count something else."""
    losing = [p for p in points if p.losses]
    return losing if len(losing) >= FEWEST_LOSSES else points


def from_clock(run: Run) -> list[Sample]:
    """Differences of the timestamps of one rank's lines."""
    stamped = _of_one_counter([p for p in _train(run) if p.time_s is not None and p.iteration is not None])
    counts: dict[int | None, int] = defaultdict(int)
    for p in stamped:
        counts[p.rank] += 1
    if not counts:
        return []
    rank = max(counts, key=lambda r: counts[r])
    known = [(p, p.time_s) for p in stamped if p.rank == rank and p.time_s is not None]
    return _differences(run, _without_evaluations(run, known), clocked=True)


def _without_evaluations(run: Run, known: list[tuple[Point, float]]) -> list[tuple[Point, float]]:
    """The stamps without the time of evaluations, where one at the same index stands behind each line of training: it
    begins where that line was written, and its own line tells when it ended."""
    held = [p for p in run.points if p.kind is Kind.VALIDATION and p.time_s is not None]
    lines = [p.line for p in held]
    gone_s = 0.0
    told = known[:1]
    for (p, since_s), (behind, by_s) in pairwise(known):
        at = bisect_left(lines, behind.line) - 1
        newest = held[at] if at >= 0 and lines[at] > p.line else None
        if newest is None or newest.time_s is None or newest.iteration != p.iteration:
            return known
        if not since_s <= newest.time_s <= by_s:
            return known
        gone_s += newest.time_s - since_s
        told.append((behind, by_s - gone_s))
    return told


def from_epochs(run: Run, epoch: EpochTime | None) -> list[Sample]:
    length = run.iterations_per_epoch
    if length is None and epoch is not None and epoch.n > 1:  # two guesses, of a length and of what was timed, are none
        length = _length_of_epoch(run)
    if epoch is None or not length or (run.unit == "sample" and not run.batch_size):
        return []
    steps = length / run.batch_size if run.unit == "sample" and run.batch_size else length
    if not steps >= 1:  # no epoch is shorter, and a number that is none is no length
        return []
    lasted = enumerate(epoch_durations(run))
    return [
        Sample(
            float(i),
            seconds / steps,
            steps,
            line,
        )
        for i, (seconds, line) in lasted
        if _can_be(seconds / steps)
    ]


def _length_of_epoch(run: Run) -> float | None:
    """Iterations an epoch as far as they were seen: the last index before the counter starts again.

    What is not printed behind it is less than one logging interval: half of one is the best guess. Where that is
    more than `GUESSED` of the epoch, nothing is guessed.
    """
    if run.scope != "epoch" or run.unit == "sample":
        return None
    seen: dict[float, list[float]] = defaultdict(list)
    for p in run.points:
        if p.kind is Kind.TRAIN and p.iteration is not None and p.epoch is not None:
            seen[float(int(p.epoch))].append(p.iteration)
    full = [max(seen[e]) for e in sorted(seen)[:-1]]
    steps = [b - a for own in seen.values() for a, b in pairwise(own) if b > a]
    if not full:
        return None
    unseen = median(steps) / 2 if steps and median(steps) > 1 else 0.0
    return median(full) + unseen if unseen <= GUESSED * median(full) else None


def from_bars(run: Run) -> list[Sample]:
    """A bar's own rate; by its elapsed time where it has one (differences are steps, the rate is smoothed)."""
    bars = [p for p in _train(run) if p.from_bar]
    if _skipped(run, bars) and not from_elapsed(run, bar=True):
        return []
    final = [p for p in bars if not p.redrawn]
    if len(final) < 5:
        final = bars
    return _by_position(run, [(p, p.step_s) for p in final if p.step_s is not None])


def _skipped(run: Run, bars: Sequence[Point]) -> bool:
    """Whether a bar ran, as it began, over steps that were trained before: the first loss comes later than the others
    come one behind the other, and the bar stood there within a second. Its rate is of those steps too."""
    told = [p.epoch for p in _train(run) if p.losses and p.epoch is not None]
    apart = [b - a for a, b in pairwise(told) if b > a]
    if not apart or not bars or bars[0].elapsed_s is None:
        return False
    return bars[0].elapsed_s <= 1 and told[0] > LATE * median(apart)


def _differences(run: Run, rows: Sequence[tuple[Point, float]], clocked: bool = False) -> list[Sample]:
    """(point, clock) -> seconds an iteration between points, joined until the clock's tick does not matter. `clocked`:
    the times are stamps; what else falls now and then grows since no beginning."""
    positions = Positions.of(run)
    if positions.axis == "epoch":  # seconds of an epoch are none of an iteration
        return []
    # a counter of samples times a step only where the batch is known
    batch = run.batch_size if run.unit == "sample" else 1.0
    if not batch:
        return []
    known = [(at / batch, t, p) for p, t in rows if (at := positions(p)) is not None]
    if not clocked and _falls([t for _, t, _ in known]):
        return []
    tick = tick_of([t for _, t, _ in known])
    return _joined(run, known, TICKS * tick) or _joined(run, known, FEWEST_TICKS * tick)


def _falls(times: Sequence[float]) -> bool:
    """Whether a time goes back about as often as forth."""
    fell = sum(b < a for a, b in pairwise(times))
    return len(times) > 3 and fell > FALLS * (len(times) - 1)


def _joined(run: Run, known: Sequence[tuple[float, float, Point]], least: float) -> list[Sample]:
    """Intervals of at least so many seconds."""
    samples: list[Sample] = []
    start: tuple[float, float, Point] | None = None
    for now in known:
        if start is None or _broken(run, start[2], now[2], start, now):
            start = now
            continue
        steps, seconds = now[0] - start[0], now[1] - start[1]
        if steps > LEAST and seconds >= least and _can_be(seconds / steps):
            samples.append(Sample(now[0], seconds / steps, steps, now[2].line))
            start = now
    return samples


def _broken(run: Run, a: Point, b: Point, start: tuple[float, float, Point], now: tuple[float, float, Point]) -> bool:
    """True where the interval between two points is not all training of one stretch."""
    if now[0] < start[0] or not 0 <= now[1] - start[1] < TWO_CLOCKS_S:  # resumed behind, or the clock stepped
        return True
    if run.scope == "epoch" and a.epoch is not None and b.epoch is not None and int(a.epoch) != int(b.epoch):
        return True
    return any(_overlaps(pause, a.line, b.line) for pause in run.pauses)


def _overlaps(pause: Pause, first: int, last: int) -> bool:
    return pause.first_line <= last and pause.last_line >= first


def tick_of(times: Sequence[float]) -> float:
    """The resolution of a printed clock, in s: the largest power of ten that all its readings are multiples of."""
    for tick in (
        1.0,
        0.1,
        0.01,
        0.001,
    ):
        if all(abs(t / tick - round(t / tick)) < 1e-4 for t in times):
            return tick
    return 0.0


def epoch_durations(run: Run) -> list[tuple[float, int]]:
    """(seconds, line) of every whole epoch of training whose time is printed: on lines that summarise training, else on
    those that tell held-out values beside it."""
    own = [p for p in run.points if p.kind is not Kind.VALIDATION]
    for kind, fewest in ((Kind.TRAIN, 2), (Kind.EPOCH, 3)):  # two sums of an epoch may stand on lines of their own
        if _rises_within([p for p in own if p.kind is kind and not p.from_bar], fewest):
            own = [p for p in own if p.kind is not kind or p.from_bar]
    return _durations(own) or _durations([p for p in run.points if p.kind is Kind.VALIDATION])


def _rises_within(points: Sequence[Point], fewest: int) -> bool:
    """Whether what lines tell of the time of their epoch, so many of each, grows from line to line: it is how long it
    has lasted."""
    told = [(p.epoch, p.rank, p.epoch_s) for p in points if p.epoch_s is not None]
    often = Counter(at[:2] for at in told)
    told = [at for at in told if often[at[:2]] >= fewest]
    alike = [(a[2], b[2]) for a, b in pairwise(told) if a[:2] == b[:2]]
    steps = [after - before for before, after in alike]
    return len(steps) > 1 and sum(step > 0 for step in steps) > (1 - FALLS) * len(steps)


def _durations(points: Sequence[Point]) -> list[tuple[float, int]]:
    ranked: dict[float, list[tuple[float, int]]] = {}
    lasted = _lasting(points)
    for order, p in enumerate(points):
        seconds = None if p.redrawn else _lasted(p, lasted)
        if seconds is not None and _can_be(seconds):
            key = float(order) if p.epoch is None else float(int(p.epoch))
            ranked.setdefault(key, []).append((seconds, p.line))
    torn_apart = [rows for rows in ranked.values() if max(rows)[0] > TORN * min(rows)[0]]
    if 2 * len(torn_apart) > len(ranked):
        return []  # one of them is of something else, and nothing says which
    made = []
    for epoch, rows in ranked.items():
        _, last_line = rows[-1]
        made.append((epoch, fmean(seconds for seconds, _ in rows), last_line))
    return _since_beginning(made) or [(seconds, line) for _, seconds, line in made]


def _since_beginning(made: Sequence[tuple[float, float, int]]) -> list[tuple[float, int]]:
    """(seconds an epoch, line) where the times of epochs are all since the first began: each is longer than the one
    before by about as much an epoch, until the last is far above the first; else nothing."""
    if len(made) <= GROWING or made[-1][1] < LASTING * made[0][1]:
        return []
    steps = []
    for (epoch, since_s, _), (next_epoch, by_s, line) in pairwise(made):
        epochs = next_epoch - epoch
        steps.append(((by_s - since_s) / epochs if epochs > 0 else 0.0, line))
    each = [seconds for seconds, _ in steps]
    return steps if 0 < max(each) < LASTING * min(each) else []


def _lasted(p: Point, own: bool) -> float | None:
    """How long the epoch took that this line tells of; `own`: elapsed times of summaries are each epoch's own."""
    if p.epoch_s is not None:
        return p.epoch_s
    at_its_end = p.elapsed_of == "epoch" and p.iteration is not None and p.iteration == p.iterations
    if at_its_end and p.kind is not Kind.VALIDATION:  # a bar
        return p.elapsed_s
    return p.elapsed_s if own and p.kind is Kind.EPOCH else None


def _lasting(points: Sequence[Point]) -> bool:
    """Whether the elapsed time that the summaries of epochs tell is each epoch's own: it does not grow."""
    told = {p.epoch: p.elapsed_s for p in points if p.kind is Kind.EPOCH and not p.redrawn and p.elapsed_s}
    return len(told) > 1 and max(told.values()) < LASTING * min(told.values())


def _between_epochs(run: Run) -> list[float]:
    """Seconds an epoch by the stamps of the lines that sum up epochs; too few say nothing."""
    summed_up = [p for p in run.points if p.kind is Kind.EPOCH and p.rank in (None, 0) and not p.redrawn]
    known = [(p.epoch, p.time_s) for p in summed_up if p.epoch is not None and p.time_s is not None]
    each = []
    for (epoch, since_s), (next_epoch, by_s) in pairwise(known):
        epochs, took_s = next_epoch - epoch, by_s - since_s
        if epochs > 0 and took_s > 0:
            each.append(took_s / epochs)
    return each if len(each) >= FEWEST_EPOCHS else []


def epoch_refuted(run: Run, epoch: EpochTime) -> str:
    """Why the stamps of the lines that sum up epochs do not allow a time of an epoch; "" where they do. What is no
    quarter of the time between them is of something else, or in another unit."""
    each = _between_epochs(run)
    if not each:
        return ""
    between = median(each)
    if epoch.median <= LASTING * between + MINUTE_S and between <= PARTLY * epoch.median + MINUTE_S:
        return ""
    return f"an epoch is told to take {epoch.median:.4g} s, its lines are {between:.4g} s apart: neither is used"


def epoch_time(run: Run) -> EpochTime | None:
    """Median printed duration of an epoch; by the stamps where the log tells of nothing but epochs."""
    durations = [seconds for seconds, _ in epoch_durations(run)]
    if not durations and run.last_iteration is None:
        durations = _between_epochs(run)
    return EpochTime(median=median(durations), n=len(durations)) if durations else None
