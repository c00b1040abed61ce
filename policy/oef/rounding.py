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

from policy.model import GpuType, JobName, Seconds, Snapshot

Table = Mapping[str, Mapping[GpuType, float]]


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
        self, snapshot: Snapshot, quantum_s: Seconds, most: Mapping[GpuType, int]
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
    ideal: Table,
    deviation: Table,
    gpus: Mapping[GpuType, int],
    smallest: Mapping[str, int],
    largest: Mapping[str, float],
) -> dict[str, dict[GpuType, int]]:
    """Whole GPUs by row and type for one round: real = round(ideal + deviation), never more than there are.

    ideal, deviation   row -> type -> GPUs
    gpus               type -> GPUs to give
    smallest           row -> its smallest gang. Below it a row waits (0) and its deviation grows, so that it is served
                       later (§4.3).
    largest            row -> most GPUs it can use at all (inf: no limit): a debt beyond that is not asked for.

    Where rounding gives more than there are, those rounded up the most step back, of equals those who are owed the
    fewest rounds of their share; GPUs that stay over go to rows that are owed the most and could use them. Ties: by row
    name.
    """
    out: dict[str, dict[GpuType, int]] = {row: {} for row in ideal}
    for t, there in gpus.items():
        want, rounds = dict[str, float](), dict[str, float]()
        for r, of in ideal.items():
            share = of.get(t, 0.0)
            owed = deviation.get(r, {}).get(t, 0.0)
            want[r] = min(share + owed, largest[r])
            # What it could not even use beside its share is owed by nobody, but for one gang.
            beside = max(largest[r] - share, 0.0) + smallest[r]
            rounds[r] = min(owed, beside) / max(share, 1e-9)
        for r, n in _of_type({r: w for r, w in want.items() if w > 0}, rounds, there, smallest).items():
            if n:
                out[r][t] = n
    return out


def _of_type(
    want: Mapping[str, float], rounds: Mapping[str, float], there: int, smallest: Mapping[str, int]
) -> dict[str, int]:
    """Whole GPUs by row of `there` of one type."""
    real = {r: math.floor(w + 0.5 + 1e-9) for r, w in want.items()}

    def short(row: str) -> tuple[float, float, str]:
        return round(want[row] - real[row], 9), rounds[row], row

    while sum(real.values()) > there:
        most = min((row for row in real if real[row]), key=short)
        real[most] -= 1
    real = {r: n if n >= smallest[r] else 0 for r, n in real.items()}
    while (left := there - sum(real.values())) > 0:
        owed = {r: want[r] - real[r] for r in real if want[r] - real[r] > 1e-9}
        step = {r: 1 if real[r] else smallest[r] for r in owed}
        fits = [r for r in owed if step[r] <= left]
        if not fits:
            break
        best = min(fits, key=lambda r: (-owed[r], r))
        real[best] += step[best]
    return real


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
