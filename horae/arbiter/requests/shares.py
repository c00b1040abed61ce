"""Who may still hand in jobs when the disk of the arbiter's state, or what it may have of memory, grows full.

While there is plenty, everybody. From then on what one user has on record may take as much as is left for all new
jobs, and no more: who hands in for ever takes half of the room and is refused, the next one half of the rest, and so
on, while those who have little are taken to the end.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
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
#: Bytes of memory that jobs on record may take in all, of which half is one user's at most: a quarter of the machine's,
#: one GiB on a small one. A job takes some thousand and its words, in several pictures; a hundred thousand of a user's
#: are no attack, a hundred of three MiB each are.
MEMORY = max(1 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
_AN_ENTRY = 100
#: Jobs are forgotten by themselves: they are counted anew where there seems to be no room, and so often at most.
_COUNT_S = 10.0


class Shares:
    """Remembers what each job on record takes."""

    def __init__(self) -> None:
        self._costs: dict[JobId, int] = {}
        self._memory: Counter[str] = Counter()  #: by owner, at most
        self._counted_s = -math.inf

    def check(self, ledger: Ledger, room: Room, asked: Sequence[tuple[str, JobSpec]], taken: dict[str, int]) -> None:
        """Raises TryLater where these jobs, (owner, what), take more than their owners' shares.

        `taken`: what was admitted since `room` was looked at, by owner; brought up to date.
        """
        self._check_memory(ledger, asked)
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

    def _check_memory(self, ledger: Ledger, asked: Sequence[tuple[str, JobSpec]]) -> None:
        """Raises TryLater."""
        wanted: Counter[str] = Counter()
        for owner, spec in asked:
            wanted[owner] += _memory(spec)
        since_s = time.monotonic() - self._counted_s
        if since_s == math.inf or (since_s > _COUNT_S and self._short(wanted)):
            self._count(ledger)
        if owner := self._short(wanted):
            taken = self._memory[owner]
            left = MEMORY - self._memory.total()
            raise TryLater(
                f"no new job of {owner} is taken: those on record, with what they say, take {taken >> 20} MiB of the "
                f"arbiter's memory, of which {left >> 20} MiB are left for everybody's; shorter commands and "
                "environments take less, and what ended long ago is forgotten (`history` in the configuration)",
                retry_after_s=RETRY_S,
            )
        self._memory += wanted

    def _count(self, ledger: Ledger) -> None:
        self._counted_s = time.monotonic()
        self._memory.clear()
        for record in ledger.jobs.values():
            self._memory[record.owner] += _memory(record.spec)

    def _short(self, wanted: Counter[str]) -> str:
        """Whose jobs there is no room for; "": there is for all."""
        left = MEMORY - self._memory.total()
        for owner, size in wanted.items():
            if wanted.total() > left:
                return owner
            if self._memory[owner] + size > left:
                return owner
        return ""

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


def _memory(spec: JobSpec) -> int:
    """Cheap: it is asked of every job. What a form takes as words, and as numbers by the thousand."""
    characters = 1024
    for words in (
        spec.command,
        spec.env,
        spec.env.values(),
        spec.extra,
        spec.extra.values(),
        spec.gpu_types,
        spec.prefer_types,
        spec.forbid_types,
    ):
        characters += sum(map(len, words))
    numbers = sum(map(len, spec.throughput.values()))
    if spec.gpus.allowed is not None:
        numbers += len(spec.gpus.allowed)
    return _TIMES * characters + _AN_ENTRY * numbers
