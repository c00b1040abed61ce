"""Gang-aware stride scheduling (Algorithm 1), and its split form for gangs that span nodes (§3.1).

The job with the smallest pass that fits runs. A job that does not fit is skipped and keeps its pass, so it is first
in the next quantum. A quantum of service advances a job's pass by its stride, which is inversely proportional to the
part of all quanta it is entitled to.

Passes are whole numbers of `TICK`s, so that equal passes compare equal on every machine and in every replay. They are
advanced by service that was observed, not decided, so a vetoed grant costs nobody anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

#: Parts of the quanta below this count as this.
LEAST = 1e-6
#: Ticks of virtual time that one quantum costs a job which is entitled to every quantum.
TICK = 10_000


@dataclass(frozen=True, slots=True)
class Contender:
    """One thing that competes for a quantum: a job, or the aggregate of a node's small jobs."""

    name: str
    size: int  #: GPUs, as a gang
    pass_: int  #: virtual time in ticks; smallest first
    tie: tuple[float, str] = (0.0, "")  #: (submitted, name)

    @property
    def order(self) -> tuple[int, int, float, str]:
        # Equal passes: the wider gang first. With it and `join`, Table 2's stride column is exact in six quanta.
        return (self.pass_, -self.size, self.tie[0], self.tie[1] or self.name)


def gang_stride(entries: Iterable[Contender], free: int) -> list[str]:
    """Algorithm 1: names of the entries that run this quantum on `free` interchangeable GPUs."""
    chosen: list[str] = []
    for entry in sorted(entries, key=lambda e: e.order):
        if entry.size <= free:
            free -= entry.size
            chosen.append(entry.name)
        if free == 0:
            break
    return chosen


@lru_cache(maxsize=4096)
def stride(part: float) -> int:
    """Ticks that one quantum costs an entry that is entitled to `part` (0 < part <= 1) of the quanta.

    Rounded to four digits, so that entries with the same entitlement have the same stride whatever the arithmetic
    that led to it.
    """
    return round(round(1.0 / max(part, LEAST), 4) * TICK)


def advance(pass_: int, part: float, quanta: float) -> int:
    """The pass after `quanta` (may be fractional) of observed service at the full gang."""
    return pass_ + round(stride(part) * quanta)


def mean(passes: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted by what is served beside each other a quantum, it advances by what all of it is together."""
    return sum(w * p for w, p in zip(weights, passes, strict=True)) / max(sum(weights), 1e-9)


def join(passes: Iterable[int], part: float, level: float = 0.0) -> int:
    """The pass of a new job: the smallest of those already competing there (§3.1), but no more than a stride of its own
    before the virtual time there: who is entitled to little may be far behind in passes, and little in GPU time.

    The paper is silent on the first jobs of an empty queue; they start one stride in, as in the original stride
    scheduler, which is what makes the first rounds proportional too.
    """
    own = stride(part)
    return max(min(passes, default=own), round(level) - own)


def split_stride(
    nodes: Mapping[str, int],
    small: Mapping[str, Sequence[Contender]],
    large: Sequence[tuple[Contender, Mapping[str, int]]],
    aggregate: Mapping[str, int],
) -> list[str]:
    """The split scheduler (§3.1, Figure 3): one central list of large jobs and one aggregate a node. Who runs now.

    nodes      node -> GPUs free for us
    small      node -> the jobs that live on it
    large      (job, node -> GPUs) of each gang that spans nodes
    aggregate  node -> pass of the aggregate of its small jobs

    Smallest pass first: a large job takes its GPUs on all its nodes at once, or is skipped and keeps its pass; an
    aggregate lets its node run Algorithm 1 on the GPUs that large jobs ahead of it left there.
    """
    free = dict(nodes)
    running: list[str] = []
    central: list[tuple[tuple[int, int, float, str], str, Mapping[str, int] | None]] = []
    central += [(e.order, e.name, spread) for e, spread in large]
    central += [((aggregate.get(n, 0), -nodes[n], 0.0, n), n, None) for n in small if n in nodes]
    for _, name, spread in sorted(central, key=lambda c: c[0]):
        if spread is None:
            chosen = gang_stride(small[name], free[name])
            size = {e.name: e.size for e in small[name]}
            free[name] -= sum(size[j] for j in chosen)
            running += chosen
        elif all(free.get(n, 0) >= k for n, k in spread.items()):
            for n, k in spread.items():
                free[n] -= k
            running.append(name)
    return running
