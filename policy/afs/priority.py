"""Who gets the next GPU: Algorithm 1's TOPPRIORITY, as a line of leaders.

For jobs a (shorter) and b (longer) at their present shares, b comes first iff

    (3)  (p'_b - p_b) / p'_b  >  (p'_a - p_a) / p_a

with p the throughput now and p' that after the next step (AFS §3.2). Below, `up` is a job's left side, `down` its
right side, both per GPU of the step, and `length` its remaining time at its present share.

Algorithm 1 keeps a leader while it walks over all jobs, and lets each job challenge it. Appendix C proves (3)
transitive for three jobs of rising length that beat one another in turn. The whole comparison is not: with lengths
a < b < c it happens that a leads b, b leads c and c leads a (up/down: a -/.40, b .33/.50, c .45/-). The outcome then
hangs on the order of the walk, and a balanced tournament over the same jobs gives other shares than Algorithm 1 (on
random concave curves with ten jobs and thirty GPUs in four cases of five). So the order is fixed, earliest submitted
first, then name, and the walk itself is what is made fast.

`Leaders` keeps the line of leaders that the walk goes through: job 0, the first that beats it, the first after that
one that beats that, and so on; its end is the top priority. Giving a step to the top changes only the top, so only
the end of the line has to be found anew. The search for "the first later job that beats this one" goes down a tree
over the jobs whose nodes know the largest `up`, `down` and `length` and the smallest `length` below them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from policy.throughput import NOISE


def beats(
    up: float, down: float, length: float, leader_up: float, leader_down: float, leader_length: float, shorter: bool
) -> bool:
    """True if a job takes the lead from a leader that comes before it in the order of ties.

    `shorter`: equal sides of (3) go to the shorter job (Algorithm 1, line 12), else to the earlier one.
    """
    if leader_length <= length:
        return up > leader_down * (1 + NOISE)
    if shorter:
        return down >= leader_up * (1 - NOISE)
    return down > leader_up * (1 + NOISE)


class Leaders:
    """The line of leaders over jobs 0..n-1, in the order of ties."""

    def __init__(self, ups: list[float], downs: list[float], lengths: list[float], shorter: bool = False) -> None:
        self._n = n = len(ups)
        self._shorter = shorter
        self._size = size = 1 << max(n - 1, 0).bit_length()
        least, most = [-inf] * (size - n), [inf] * (size - n)
        self._up, self._down = _tree(max, ups + least), _tree(max, downs + least)
        self._long, self._short = _tree(max, lengths + least), _tree(min, lengths + most)
        self._line: list[int] = []
        if n:
            self._extend(0)

    @property
    def top(self) -> int | None:
        """The job with the top priority; None when nobody gains from more GPUs."""
        return self._line[-1] if self._line else None

    def change(self, up: float, down: float, length: float) -> None:
        """The top job has taken its step: these are its values now."""
        self._set(self._line[-1], up, down, length)
        last = self._line.pop()
        self._resume(last)

    def leave(self) -> None:
        """The top job takes no more: it challenges nobody and leads nobody."""
        last = self._line.pop()
        self._set(last, -inf, -inf, inf)
        self._resume(last)

    def _resume(self, last: int) -> None:
        """Find the line again behind its present end, knowing that nobody before `last` beats that end."""
        leaf = last + self._size
        if self._up[leaf] != -inf and (not self._line or self._beats(leaf, self._line[-1] + self._size)):
            self._extend(last)
            return
        found = self._first_after(last, self._line[-1]) if self._line else self._first_alive(last)
        if found is not None:
            self._extend(found)

    def _extend(self, job: int) -> None:
        found: int | None = job
        while found is not None:
            self._line.append(found)
            found = self._first_after(found, found)

    def _beats(self, job: int, leader: int) -> bool:
        up, down, length = self._up, self._down, self._long
        return beats(up[job], down[job], length[job], up[leader], down[leader], length[leader], self._shorter)

    def _first_alive(self, after: int) -> int | None:
        return next((i for i in range(after + 1, self._n) if self._up[i + self._size] != -inf), None)

    def _first_after(self, after: int, leader: int) -> int | None:
        """The first job behind `after` that beats `leader`."""
        at = leader + self._size
        leader_up, leader_down, leader_length = self._up[at], self._down[at], self._long[at]
        ups, downs, longest, shortest, size = self._up, self._down, self._long, self._short, self._size
        need_up = leader_down * (1 + NOISE)
        need_down = leader_up * (1 - NOISE) if self._shorter else leader_up * (1 + NOISE)
        shorter = self._shorter

        node = after + size
        # Climb: the subtrees to the right of the path from `after` to the root hold the later jobs, in order.
        while node > 1:
            if node & 1 == 0:
                found = self._descend(
                    node + 1, need_up, need_down, leader_length, ups, downs, longest, shortest, size, shorter
                )
                if found is not None:
                    return found
            node >>= 1
        return None

    @staticmethod
    def _descend(
        root: int,
        need_up: float,
        need_down: float,
        leader_length: float,
        ups: list[float],
        downs: list[float],
        longest: list[float],
        shortest: list[float],
        size: int,
        shorter: bool,
    ) -> int | None:
        stack = [root]
        while stack:
            node = stack.pop()
            as_longer = ups[node] > need_up and longest[node] >= leader_length
            as_shorter = shortest[node] < leader_length and (
                downs[node] >= need_down if shorter else downs[node] > need_down
            )
            if not (as_longer or as_shorter):
                continue
            if node >= size:
                return node - size
            stack.append(2 * node + 1)
            stack.append(2 * node)
        return None

    def _set(self, job: int, new_up: float, new_down: float, length: float) -> None:
        up, down, long, short = self._up, self._down, self._long, self._short
        node = job + self._size
        up[node], down[node], long[node], short[node] = new_up, new_down, length, length
        node >>= 1
        while node:
            left = 2 * node
            right = left + 1
            most_up = up[left] if up[left] > up[right] else up[right]
            most_down = down[left] if down[left] > down[right] else down[right]
            longest = long[left] if long[left] > long[right] else long[right]
            shortest = short[left] if short[left] < short[right] else short[right]
            same = up[node] == most_up and down[node] == most_down
            if same and long[node] == longest and short[node] == shortest:
                return  # nor does anything above it change
            up[node], down[node], long[node], short[node] = most_up, most_down, longest, shortest
            node >>= 1


def _tree(best: Callable[[float, float], float], leaves: list[float]) -> list[float]:
    """Node 1 is the root, 2n and 2n+1 are below n; each is the best of what is below it."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        levels.append(list(map(best, levels[-1][::2], levels[-1][1::2])))
    return [leaves[0], *(value for level in reversed(levels) for value in level)]
