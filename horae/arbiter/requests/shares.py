"""Who may still hand in jobs when the disk of the arbiter's state grows full.

While there is plenty, everybody. From then on what one user has on record may take as much as is left for all new
jobs, and no more: who hands in for ever takes half of the room and is refused, the next one half of the rest, and so
on, while those who have little are taken to the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae import spec_json
from horae.journal import Ledger
from horae.journal.room import Room
from horae.port import JobId, TryLater
from horae.spec import JobSpec

#: Nobody is asked what he takes while so much is left.
PLENTY = 256 << 20
#: Bytes that a job takes beside what it says: its events, and its files, each at least a block of the disk.
_A_JOB = 16 << 10
#: What it says stands in the journal, its log, the cluster's book and the job's folder.
_TIMES = 4
RETRY_S = 60.0


class Shares:
    """Remembers what each job on record takes."""

    def __init__(self) -> None:
        self._costs: dict[JobId, int] = {}

    def check(self, ledger: Ledger, room: Room, asked: Sequence[tuple[str, JobSpec]], taken: dict[str, int]) -> None:
        """Raises TryLater where these jobs, (owner, what), take more than their owners' shares.

        `taken`: what was admitted since `room` was looked at, by owner; brought up to date.
        """
        if room.for_jobs >= PLENTY:
            return
        wanted: dict[str, int] = {}
        for owner, spec in asked:
            wanted[owner] = wanted.get(owner, 0) + _cost(spec)
        left = room.for_jobs - sum(taken.values())
        for owner, cost in wanted.items():
            his = self._of(ledger, owner) + taken.get(owner, 0)
            if cost > left or his + cost > max(left, _A_JOB * 2):
                raise TryLater(
                    f"the disk of the arbiter's state is nearly full: no new job of {owner} is taken, whose jobs on "
                    f"record take {his >> 10} KiB of it while {max(left, 0) >> 10} KiB are left for everybody's new "
                    "ones; an operator can make room (`horae status` says where)",
                    retry_after_s=RETRY_S,
                )
        for owner, cost in wanted.items():
            taken[owner] = taken.get(owner, 0) + cost

    def _of(self, ledger: Ledger, owner: str) -> int:
        if len(self._costs) > 2 * len(ledger.jobs) + 1000:
            self._costs = {job: cost for job, cost in self._costs.items() if job in ledger.jobs}
        total = 0
        for record in ledger.jobs.values():
            if record.owner == owner:
                cost = self._costs.get(record.id)
                if cost is None:
                    cost = self._costs[record.id] = _cost(record.spec)
                total += cost
        return total


def _cost(spec: JobSpec) -> int:
    return _A_JOB + _TIMES * len(spec_json.encode(spec))
