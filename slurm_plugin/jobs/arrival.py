"""When jobs came, finer than Slurm's stamps, which are whole seconds: within one, by number. Pure but for a memory."""

from __future__ import annotations

from collections.abc import Mapping

from horae.port import JobId
from policy.model import Seconds
from slurm_plugin.records import JobRow

_NEXT_S = 1e-5  #: from one job to the next of the same second: as small as lasts through sums of times


class Arrivals:
    """Each job's place is found once, in the look that shows it first: by JobId, then by the task's number."""

    def __init__(self) -> None:
        self._came: dict[JobId, tuple[float, Seconds]] = {}  #: (the second, the time in it)
        self._newest: dict[float, Seconds] = {}  #: by second

    def look(self, rows: Mapping[JobId, JobRow]) -> None:
        """Place those that are new, and forget those that are gone."""
        if self._came.keys() - rows.keys():
            self._came = {job: came for job, came in self._came.items() if job in rows}
            self._newest = {}
            for second, time_s in self._came.values():
                self._newest[second] = max(time_s, self._newest.get(second, second))
        told = [(row.submit_s, job, row) for job, row in rows.items() if row.submit_s is not None]
        fresh = [(second, *_numbers(row), job) for second, job, row in told if job not in self._came]
        for second, _, _, job in sorted(fresh):
            before = self._newest.get(second)
            self._newest[second] = second if before is None else before + _NEXT_S
            self._came[job] = second, self._newest[second]

    def of(self, job: JobId) -> Seconds | None:
        """None where Slurm does not tell."""
        came = self._came.get(job)
        return None if came is None else came[1]


def _numbers(row: JobRow) -> tuple[int, int]:
    array, _, task = row.id.partition("_")
    return int(array), int(task or 0)
