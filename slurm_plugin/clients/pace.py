"""How fast Slurm is asked: a bucket of requests that bounds the rate, and counts of what was really sent.

slurmctld answers one request after another for all its users, so an arbiter must bound what it asks whatever its
rounds look like. A request is one remote call of slurmctld (squeue makes two); the bucket lets short bursts pass (a
round that starts 50 jobs) and holds longer ones to `per_s`. Where slurmctld itself limits rates (rl_enable), the
bounds are its own, so that commands never meet its silent sleeps.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEFAULT_PER_S, DEFAULT_BURST = 50.0, 200.0
_WINDOW_S = 60.0


class Pace:
    """Thread-safe. `requests` and `waited_s` are totals since it was made."""

    def __init__(
        self,
        per_s: float = DEFAULT_PER_S,
        burst: float = DEFAULT_BURST,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.per_s, self.burst = per_s, burst
        self.requests = 0
        self.waited_s = 0.0
        self._clock, self._sleep = clock, sleep
        self._left, self._at_s = burst, clock()
        self._limited = False  #: the bounds are slurmctld's own
        self._hurries = 0
        self._sent: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def bound(self, per_s: float, burst: float) -> None:
        """New bounds. They begin with nothing saved up: what was asked before them counts for slurmctld as well."""
        with self._lock:
            self._limited = True
            if (per_s, burst) != (self.per_s, self.burst):
                self.per_s, self.burst, self._left = per_s, burst, 0.0
                self._at_s = self._clock()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Meanwhile our own bounds do not count; slurmctld's do. Each answer is still waited for."""
        with self._lock:
            self._hurries += 1
        try:
            yield
        finally:
            with self._lock:
                self._hurries -= 1

    def spend(self, requests: int = 1) -> None:
        """Wait until so many requests may be made, and count them."""
        with self._lock:
            now = self._clock()
            if self._hurries and not self._limited:
                self.requests += requests
                self._sent.append((now, requests))
                return
            self._left = min(self._left + (now - self._at_s) * self.per_s, self.burst) - requests
            self._at_s = now
            wait_s = max(-self._left / self.per_s, 0.0)
            self.requests += requests
            self.waited_s += wait_s
            self._sent.append((now + wait_s, requests))
            while self._sent and self._sent[0][0] < now - _WINDOW_S:
                self._sent.popleft()
        if wait_s > 0:
            self._sleep(wait_s)

    def rate(self) -> float:
        """Requests a second over the last minute."""
        with self._lock:
            now = self._clock()
            return sum(count for at_s, count in self._sent if now - _WINDOW_S <= at_s <= now) / _WINDOW_S


def site_limit(slurmctld_parameters: str) -> tuple[float, float] | None:
    """(requests a second, burst) of a site with rl_enable in SlurmctldParameters, as Slurm itself reads them."""
    words = {word.partition("=")[0].lower(): word.partition("=")[2] for word in slurmctld_parameters.split(",")}
    if "rl_enable" not in words:
        return None

    def value(name: str, default: float) -> float:
        found = re.fullmatch(r"\d+", words.get(name, ""))
        return max(float(found[0]), 1.0) if found else default

    return value("rl_refill_rate", 2.0) / value("rl_refill_period", 1.0), value("rl_bucket_size", 30.0)
