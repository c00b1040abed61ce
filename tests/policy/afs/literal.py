"""AFS-L's algorithm as the paper writes it."""

from __future__ import annotations

from policy.model import Job, Snapshot
from policy.throughput import NOISE, Throughput


def literal(snapshot: Snapshot, *, shorter: bool = False) -> dict[str, int]:
    """Algorithm 1 as printed, on one GPU type: walk over all jobs for every GPU, in the order of ties.

    Beside the printed text: stage one first (a job without GPUs precedes one with some), equal sides of (3) and equal
    lengths go to the earlier job, and a job that gains nothing, or may have no more, stands aside.
    """
    speeds = Throughput(snapshot.cluster)
    (gpu_type,) = speeds.present
    jobs = sorted(snapshot.jobs, key=lambda j: j.order)
    cnt = dict.fromkeys((j.name for j in jobs), 0)

    def p(j: Job, n: int) -> float:
        return speeds.at(j, gpu_type, n) or 0.0

    def length(j: Job) -> float:
        assert j.work_left is not None
        return j.work_left / p(j, max(cnt[j.name], 1))

    def gains(j: Job) -> bool:
        n = cnt[j.name]
        return j.gpus.feasible(n + 1) and p(j, n + 1) > p(j, n) * (1 + NOISE)

    def first(star: Job, j: Job) -> Job:
        """Lines 4 to 12; `star` comes before `j` in the order of ties."""
        a, b = star, j
        if cnt[a.name] == 0 and cnt[b.name] == 0:
            return a if length(a) <= length(b) else b
        if cnt[a.name] == 0 or cnt[b.name] == 0:
            return a if cnt[a.name] == 0 else b
        if length(a) > length(b):
            a, b = b, a
        left = (p(b, cnt[b.name] + 1) - p(b, cnt[b.name])) / p(b, cnt[b.name] + 1)
        right = (p(a, cnt[a.name] + 1) - p(a, cnt[a.name])) / p(a, cnt[a.name])
        if abs(left - right) <= NOISE * max(left, right):
            return a if shorter else star
        return b if left > right else a

    for _ in range(sum(n.gpus for n in snapshot.cluster.nodes)):
        able = [j for j in jobs if gains(j)]
        if not able:
            break
        star = able[0]
        for j in able[1:]:
            star = first(star, j)
        cnt[star.name] += 1
    return cnt
