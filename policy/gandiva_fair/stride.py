"""Gang-aware stride scheduling (Algorithm 1), and its split form for gangs that span nodes (§3.1).

A job's stride is inversely proportional to its tickets; the job with the smallest pass that fits runs. A job that
does not fit is skipped and keeps its pass, so it is first in the next quantum.

Normalisation: jobTickets (Eq. 3) = ticketsPerGPU x size are the tickets a job *uses*; so that a tenant's service in
GPU time is proportional to its tickets, the stride is size / jobTickets = 1 / ticketsPerGPU in units of quanta.
Passes are advanced by service that was observed, not decided (`advance`), so a vetoed grant costs nobody anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that competes for a quantum: a job, or the aggregate of a node's small jobs."""

    name: str
    size: int  #: GPUs, as a gang
    pass_: Fraction  #: virtual time; smallest first
    tie: tuple[float, str] = (0.0, "")  #: (submitted, name)

    @property
    def order(self) -> tuple[Fraction, int, float, str]:
        # Equal passes: the wider gang first. With it and `join`, Table 2's stride column is exact in six quanta.
        return (self.pass_, -self.size, self.tie[0], self.tie[1] or self.name)


def gang_stride(entries: Iterable[Entry], free: int) -> list[str]:
    """Algorithm 1: names of the entries that run this quantum on `free` interchangeable GPUs."""
    chosen: list[str] = []
    for entry in sorted(entries, key=lambda e: e.order):
        if entry.size <= free:
            free -= entry.size
            chosen.append(entry.name)
        if free == 0:
            break
    return chosen


def stride(tickets_per_gpu: float) -> Fraction:
    """Virtual time that one quantum of a job costs it, exact: equal passes must compare equal."""
    return 1 / Fraction(tickets_per_gpu).limit_denominator(10**9)


def advance(pass_: Fraction, tickets_per_gpu: float, quanta: float) -> Fraction:
    """The pass after `quanta` (may be fractional) of observed service at the full gang."""
    return pass_ + stride(tickets_per_gpu) * Fraction(quanta).limit_denominator(10**6)


def join(passes: Mapping[str, Fraction], tickets_per_gpu: float) -> Fraction:
    """The pass of a new job: the smallest of those already competing there (§3.1).

    The paper is silent on the first jobs of an empty queue; they start one stride in, as in the original stride
    scheduler, which is what makes the first rounds proportional too.
    """
    return min(passes.values(), default=stride(tickets_per_gpu))


@dataclass(frozen=True, slots=True)
class Quantum:
    """One quantum of the split scheduler: node -> jobs that run there; a large job is under each of its nodes."""

    running: Mapping[str, tuple[str, ...]]

    @property
    def jobs(self) -> set[str]:
        return {job for names in self.running.values() for job in names}


def split_stride(
    nodes: Mapping[str, int],
    small: Mapping[str, Sequence[Entry]],
    large: Sequence[tuple[Entry, Mapping[str, int]]],
    aggregate: Mapping[str, Fraction],
) -> Quantum:
    """The split scheduler (§3.1, Figure 3): one central list of large jobs and one aggregate a node.

    nodes      node -> GPUs free for us
    small      node -> the jobs that live on it
    large      (job, node -> GPUs) of each gang that spans nodes
    aggregate  node -> pass of the aggregate of its small jobs; missing: the node has none

    A chosen large job takes its GPUs on all its nodes at once; a chosen aggregate lets its node run Algorithm 1 on
    the GPUs that large jobs left there. A node on which neither could be chosen first still fills what is free.
    """
    free = dict(nodes)
    running: dict[str, list[str]] = {node: [] for node in nodes}
    closed: set[str] = set()  # nodes whose small jobs were let run: large jobs behind them do not fit any more

    def run_small(node: str) -> None:
        for name in gang_stride(small.get(node, ()), free[node]):
            size = next(e.size for e in small[node] if e.name == name)
            free[node] -= size
            running[node].append(name)
        closed.add(node)

    central: list[tuple[tuple[Fraction, int, float, str], str, Mapping[str, int] | None]] = []
    central += [(e.order, e.name, spread) for e, spread in large]
    central += [((p, -nodes[n], 0.0, n), n, None) for n, p in aggregate.items() if n in nodes]
    for _, name, spread in sorted(central, key=lambda c: c[0]):
        if spread is None:
            run_small(name)
        elif all(n in free and n not in closed and free[n] >= k for n, k in spread.items()):
            for n, k in spread.items():
                free[n] -= k
                running[n].append(name)
        elif all(n in free and free[n] >= k for n, k in spread.items()):
            for n, k in spread.items():  # small jobs left enough: work conservation, nobody is displaced
                free[n] -= k
                running[n].append(name)
    return Quantum({n: tuple(names) for n, names in running.items()})
