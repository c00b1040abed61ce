"""Fractional shares over rounds: whole GPUs now, and an account of the rest (OEF §4.3).

Each row (a tenant, or a job) has an ideal share of each GPU type. A round gives whole GPUs; the deviation
`ideal - served` accumulates and is added to the ideal of the next round, so that the mean of what a row gets tends to
its ideal. What was served is read from the next snapshot's attained GPU time: a grant that was vetoed, late or cut
short costs nobody anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy.model import GpuType, JobName, Seconds, Snapshot

#: GPUs that are none.
SOME = 1e-6
#: So many steps of its gangs up and down a row may go in an exchange, of none that is wider.
STEPS, WIDEST = 4, 128
Table = Mapping[str, Mapping[GpuType, float]]
#: Row -> type -> how many GPUs its gangs can use together, and with the one whose turn it is, as bits.
Usable = Mapping[str, Mapping[GpuType, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Account:
    """What a policy must remember between two rounds; `plain` of it is the policy's `state`."""

    at_s: Seconds = 0.0
    ideal: Table = field(default_factory=dict)  #: row -> type -> GPUs, of the round that began at `at_s`
    deviation: Table = field(default_factory=dict)  #: row -> type -> GPUs x rounds owed (negative: ahead)
    attained: Table = field(default_factory=dict)  #: job -> type -> GPU-s attained when the round began
    row_of: Mapping[JobName, str] = field(default_factory=dict)

    @staticmethod
    def of(state: Mapping[str, Any]) -> Account | None:
        """The account in a policy's state; None when there is none yet."""
        if "rounding" not in state:
            return None
        s = state["rounding"]
        return Account(s["at_s"], s["ideal"], s["deviation"], s["attained"], s["row_of"])

    def plain(self) -> dict[str, Any]:
        return {
            "rounding": {
                "at_s": self.at_s,
                "ideal": _plain(self.ideal),
                "deviation": _plain(self.deviation),
                "attained": _plain(self.attained),
                "row_of": dict(self.row_of),
            }
        }

    def charged(
        self,
        snapshot: Snapshot,
        quantum_s: Seconds,
        most: Mapping[GpuType, int],
    ) -> dict[str, dict[str, float]]:
        """The deviations now, after what was served since `at_s`.

        Of a job that is gone what it was served last cannot be seen: its row counts as served its ideal, so that an
        end neither owes nor earns. A debt is bounded by all GPUs of the type: a long outage must not be repaid by a
        long monopoly.
        """
        elapsed = snapshot.now_s - self.at_s
        rounds = elapsed / quantum_s
        now = {j.name: j for j in snapshot.jobs}
        gone = {row for job, row in self.row_of.items() if job not in now}
        out = {row: dict(by_type) for row, by_type in self.deviation.items()}
        if rounds <= 0:
            return out
        for row, by_type in self.ideal.items():
            served: dict[str, float] = {}
            for job, its_row in self.row_of.items():
                if its_row == row and job in now:
                    before = self.attained.get(job, {})
                    for t, gpu_s in now[job].attained.items():
                        served[t] = served.get(t, 0.0) + max(gpu_s - before.get(t, 0.0), 0.0) / elapsed
            for t in {*by_type, *served}:
                owed = by_type.get(t, 0.0) - served.get(t, 0.0)
                if row in gone:
                    owed = min(owed, 0.0)
                bound = float(most.get(t, 0))
                total = out.setdefault(row, {}).get(t, 0.0) + owed * rounds
                out[row][t] = min(max(total, -bound), bound)
        return out


def opened(snapshot: Snapshot, ideal: Table, deviation: Table, row_of: Mapping[JobName, str]) -> Account:
    """The account of the round that begins with this snapshot. Rows without an ideal are forgotten."""
    attained = {j.name: dict(j.attained) for j in snapshot.jobs if j.attained}
    kept = {row: deviation.get(row, {}) for row in ideal}
    return Account(snapshot.now_s, ideal, kept, attained, row_of)


def whole(
    ideal: Table, deviation: Table, gpus: Mapping[GpuType, int], usable: Usable, largest: Mapping[str, float]
) -> dict[str, dict[GpuType, int]]:
    """Whole GPUs by row and type for one round: real = round(ideal + deviation), never more than there are.

    ideal, deviation   row -> type -> GPUs
    gpus               type -> GPUs to give
    usable             row -> type -> how many its gangs can use together, and with the one whose turn it is, as bits.
                       Rounding is to one of these: below its smallest gang a row waits (0) and its deviation grows, so
                       that it is served later (§4.3), and so it does between two of them. What gangs left over of a
                       number between would be lost, round for round, to a row of wide gangs.
    largest            row -> most GPUs it can use at all (inf: no limit). Whose share that is has it in every round:
                       no debt to it could be made good.

    Where rounding gives more than there are, those rounded up the most step back, of equals those who are owed the
    fewest rounds of their share; GPUs that stay over go to rows that are owed the most and could use them. Ties: by row
    name.
    """
    out: dict[str, dict[GpuType, int]] = {row: {} for row in ideal}
    for t, there in gpus.items():
        want, rounds, sums = dict[str, float](), dict[str, float](), dict[str, int]()
        always = _always(t, there, ideal, usable, largest)
        for r, of in ideal.items():
            share = of.get(t, 0.0)
            owed = deviation.get(r, {}).get(t, 0.0)
            wish = share + owed  # beyond what it can use too: else the others' debts would always be the dearer ones
            if wish > 0 and r not in always:
                want[r], sums[r] = wish, _in_turn(usable[r][t], wish)
                # What it could not even use beside its share is owed by nobody, but for one gang.
                beside = max(largest[r] - share, 0.0) + (_next(sums[r], 0) or 0)
                rounds[r] = min(owed, beside) / max(share, 1e-9)
        real = _of_type(want, rounds, there - sum(always.values()), sums)
        for r, n in (real | always).items():
            if n:
                out[r][t] = n
    return out


def _always(
    gpu_type: GpuType, there: int, ideal: Table, usable: Usable, largest: Mapping[str, float]
) -> dict[str, int]:
    """Whose share of a type is all that it can use, where that leaves room for the smallest gang of everybody else."""
    full: dict[str, int] = {}
    widest = 0
    for row, of in ideal.items():
        share = of.get(gpu_type, 0.0)
        if share <= SOME:
            continue
        sums, _ = usable[row][gpu_type]
        if share >= largest[row] - SOME and sums >> round(largest[row]) & 1:
            full[row] = round(largest[row])
        else:
            widest = max(widest, _next(sums, 0) or 0)
    left = there - sum(full.values())
    return full if left >= widest else {}


def _in_turn(usable: tuple[int, int], want: float) -> int:
    """The sums to round to: those with the gang whose turn it is, where it has room in the nearest of all."""
    sums, with_first = usable
    least = _next(with_first, 0)
    if least is None or least > _nearest(sums, want):
        return sums
    return with_first | 1


def _of_type(
    want: Mapping[str, float], rounds: Mapping[str, float], there: int, sums: Mapping[str, int]
) -> dict[str, int]:
    """Whole GPUs by row of `there` of one type."""
    real = {r: _nearest(sums[r], w) for r, w in want.items()}

    def short(row: str) -> tuple[float, float, str]:
        """How far below what it wants it would be, half-way to its step back."""
        back = _last(sums[row], real[row] - 1)
        half = (real[row] + back) / 2
        return round(want[row] - half, 9), rounds[row], row

    while sum(real.values()) > there:
        most = min((row for row in real if real[row]), key=short)
        real[most] = _last(sums[most], real[most] - 1)
    real = _exchanged(real, want, there, sums)
    while (left := there - sum(real.values())) > 0:
        more = dict[str, int]()
        for row, has in real.items():
            above = _next(sums[row], has)
            owed = want[row] - has > 1e-9
            if owed and above is not None and above - has <= left:
                more[row] = above
        if not more:
            break
        best = min(more, key=lambda r: (real[r] + more[r] - 2 * want[r], r))
        real[best] = more[best]
    return real


def _exchanged(real: dict[str, int], want: Mapping[str, float], there: int, sums: Mapping[str, int]) -> dict[str, int]:
    """`real`, or what is nearer to what is wanted (in squares, which bounds every debt): some rows a few steps of
    their gangs higher, others lower. One step at a time does not see that 4 and 4 are better than 5 and 2."""
    steps = {r: _steps(sums[r], n) for r, n in real.items()}
    if all(max(of) - min(of) < len(of) for of in steps.values()):  # single GPUs, of which each went to the best
        return real
    widest = max(max(map(abs, of)) for of in steps.values())
    window = 2 * widest
    # How much dearer, by how many GPUs the rows so far take more than in `real`: from -window to window.
    dearer = np.full(2 * window + 1, np.inf)
    dearer[window] = 0.0
    chosen = []
    for row, of in steps.items():
        costs = np.full((len(of), len(dearer)), np.inf)
        for i, add in enumerate(of):
            step = add * (2 * real[row] + add - 2 * want[row])
            costs[i] = _shifted(dearer, add) + round(step, 9)
        best = costs.argmin(axis=0)
        chosen.append(best.astype(np.int8))
        dearer = costs.min(axis=0)
    spare = there - sum(real.values())
    most = window + min(spare, window)
    at = int(dearer[: most + 1].argmin())
    if dearer[at] > -1e-6:
        return real
    out = {}
    for row, choice in zip(reversed(steps), reversed(chosen), strict=True):
        number = int(choice[at])
        add = steps[row][number]
        out[row] = real[row] + add
        at -= add
    return out


def _shifted(values: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    """Each value so many places on, what is beyond the ends being lost."""
    out = np.full(len(values), np.inf)
    if by > 0:
        out[by:] = values[:-by]
    elif by < 0:
        out[:by] = values[-by:]
    else:
        out[:] = values
    return out


def _steps(sums: int, at: int) -> list[int]:
    """From one of these sums to itself, and to the next four on either side."""
    out, below, above = [0], at, at
    for _ in range(STEPS):
        below = _last(sums, below - 1) if below > 0 else 0
        above = _next(sums, above) or above
        out += [below - at, above - at]
    return [step for step in dict.fromkeys(out) if abs(step) <= WIDEST]


def _nearest(sums: int, want: float) -> int:
    """The one of these sums that is nearest, of two the larger."""
    below = _last(sums, math.floor(want + 1e-9))
    above = _next(sums, below)
    return below if above is None or above - want > want - below + 2e-9 else above


def _last(sums: int, most: int) -> int:
    return (sums & (1 << most + 1) - 1).bit_length() - 1


def _next(sums: int, above: int) -> int | None:
    larger = sums >> above + 1
    return above + (larger & -larger).bit_length() if larger else None


def fullest(sizes: Sequence[int], room: int, turn: bool = False) -> list[int]:
    """Which gangs of these sizes leave least of `room` GPUs idle; of sets that leave as little, the one with the
    earlier gangs. `turn`: the first that fits is one of them whatever it leaves."""
    able = [i for i, size in enumerate(sizes) if size <= room]
    chosen = able[:1] if turn else []
    rest = able[len(chosen) :]
    room -= sum(sizes[i] for i in chosen)
    within = (1 << room + 1) - 1
    sums = [1]  #: of the last so many of the rest, as bits
    for i in reversed(rest):
        with_it = sums[-1] << sizes[i]
        sums.append((sums[-1] | with_it) & within)
    left = sums.pop().bit_length() - 1
    for i in rest:
        behind = sums.pop()
        if sizes[i] <= left and behind >> left - sizes[i] & 1:
            chosen.append(i)
            left -= sizes[i]
    return chosen


def _plain(table: Table) -> dict[str, dict[str, float]]:
    return {row: {t: float(v) for t, v in by_type.items()} for row, by_type in table.items()}
