"""How many apps were active since when: what Themis' N_avg is made of, as the arbiter's ledger counts them."""

from __future__ import annotations

from collections.abc import Callable

from horae.journal.fold import KEPT_APP_COUNTS
from policy.model import Seconds


class ActiveApps:
    def __init__(self) -> None:
        self._jobs: dict[str, int] = {}
        self._counts: list[tuple[Seconds, int]] = []
        self._shown: tuple[tuple[Seconds, int], ...] | None = ()

    @property
    def history(self) -> tuple[tuple[Seconds, int], ...]:
        """(time, apps from then on)."""
        if self._shown is None:
            self._shown = tuple(self._counts)
        return self._shown

    def came(self, app: str, at_s: Seconds, oldest_s: Callable[[], Seconds]) -> None:
        """`oldest_s`: submission of the oldest job that lives, this one among them."""
        known = self._jobs.get(app, 0)
        self._jobs[app] = known + 1
        if not known:
            self._note(at_s, oldest_s)

    def went(self, app: str, at_s: Seconds, oldest_s: Callable[[], Seconds]) -> None:
        """Likewise."""
        self._jobs[app] -= 1
        if not self._jobs[app]:
            del self._jobs[app]
            self._note(at_s, oldest_s)

    def _note(self, at_s: Seconds, oldest_s: Callable[[], Seconds]) -> None:
        self._shown, counts = None, self._counts
        if counts and counts[-1][0] == at_s:
            counts.pop()
        counts.append((at_s, len(self._jobs)))
        if len(counts) > KEPT_APP_COUNTS:
            oldest = oldest_s()
            first = next((i for i, (t, _) in enumerate(counts) if t > oldest), len(counts))
            self._counts = counts[max(first - 1, len(counts) - KEPT_APP_COUNTS // 2) :]
