"""Reading the jobs: their books, and of those that live their supervisors' accounts.

A book changes only when the arbiter acts, so a scan looks at the time of each and reads what is new. (Within a clock
tick two changes can carry one time: a book read that soon after it changed is read again next time.) Whether a
supervisor lives is not in any file; it is asked of the lock, and only for jobs that have not ended. Only then is the
job's own folder looked at, which is its owner's: what cannot be believed there leaves the last word that could be,
and the job says why. Reading writes nothing: an end shows before it is noted in the book (upkeep.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from horae.elastic.protocol import State
from horae.local.account import Account
from horae.local.books import Book, Books, Unreadable
from horae.local.jobfolders import JobFolders
from horae.port import JobId, JobState, ObservedJob
from horae.untrusted import FromUser, Unbelievable
from policy.model import EMPTY, Allocation, Seconds

#: A book that changed less than this before it was read may change again with the same time stamp.
_TICK_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """One job: its book, what its supervisor says of the newest start, and whether that lives."""

    id: JobId
    folder: str
    book: Book | None = None  #: None: it cannot be read, `unread` or `trouble` says why
    unread: Unreadable | None = None  #: of the book: nothing is done to the job until it is mended
    may: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: EMPTY)  #: what it may hold, where nobody knows
    said: Account | None = None  #: of the newest start, the last word that could be believed
    lives: bool = False
    trouble: str = ""
    stamp: tuple[int, int] = (0, 0)
    settled: bool = False  #: the stamp can be relied on
    kept: bool = True  #: its book is written; else it is made each time of what a version before left
    over_s: Seconds = 0.0  #: when it was first seen that nothing of the newest start lives

    @property
    def epoch(self) -> int:
        if self.book is not None:
            return self.book.epoch
        if self.unread is not None and self.unread.epoch:
            return self.unread.epoch
        return self.said.epoch if self.said is not None else 0

    @property
    def shown(self) -> bool:
        """Whether it can be told how it stands: of whom nothing lives, and whose book cannot be read, it cannot."""
        return not self.released and (self.unread is None or self.lives)

    def readable(self) -> None:
        """Raises Unreadable."""
        if self.unread is not None:
            raise self.unread

    @property
    def unsure(self) -> bool:
        """It lives, and nobody knows on what."""
        return self.lives and self.unread is not None and self.unread.slots is None

    @property
    def final(self) -> bool:
        """The last start's end is on record (or there was none)."""
        return self.book is None or self.book.final

    @property
    def cancelled(self) -> bool:
        return self.book is not None and self.book.cancelled

    @property
    def released(self) -> bool:
        return self.book is not None and self.book.released

    @property
    def slots(self) -> Mapping[str, tuple[int, ...]]:
        """GPU indices by node that it holds: all that was granted, as long as anything of it lives."""
        if not self.lives:
            return EMPTY
        if self.book is not None:
            return self.book.slots
        if self.unread is None or self.unread.slots is None:
            return self.may
        return self.unread.slots

    @property
    def allocation(self) -> Allocation:
        return {node: len(held) for node, held in self.slots.items() if held}

    @property
    def account(self) -> Account | None:
        """The newest word about it: its end, what its supervisor says, or how the start before ended."""
        if self.book is None:
            return self.said
        return self.end or self.said or self.book.last

    @property
    def end(self) -> Account | None:
        """How the newest start ended: as its book says; before that is noted, as its supervisor said. Else it is
        lost."""
        book, said = self.book, self.said
        if book is None or self.lives or book.final:
            return None if book is None else book.end
        if self.ended_in_order:
            return said
        return replace(
            said or book.last or Account(book.epoch, State.LOST),
            epoch=book.epoch,
            state=State.CANCELLED if book.cancelled else State.LOST,
            since_s=self.over_s,
            exit_code=None,
            native=FromUser("its supervisor died"),
        )

    @property
    def ended_in_order(self) -> bool:
        """Its supervisor said how it ended."""
        return self.said is not None and self.said.final and self.said.state != State.LOST

    @property
    def job_state(self) -> JobState:
        end = self.end
        if self.lives:
            word = self.said.state if self.said is not None else State.STARTING
            # A start whose supervisor has not written yet, or an end whose lock is not free yet.
            return JobState.STOPPING if word in State.FINAL else JobState(word)
        if end is not None and end.state in (State.COMPLETED, State.FAILED, State.CANCELLED):
            return JobState(end.state)
        if self.cancelled:
            return JobState.CANCELLED
        if self.epoch == 0:
            return JobState.QUEUED
        return JobState.STOPPED if end is not None and end.state == State.STOPPED else JobState.LOST

    def observed(self) -> ObservedJob:
        state, account, book = self.job_state, self.account, self.book
        submitted_s = book.submitted_s if book is not None else 0.0
        return ObservedJob(
            id=self.id,
            state=state,
            epoch=self.epoch,
            allocation=self.allocation if state.holds and not self.unsure else EMPTY,
            since_s=self._since_s or submitted_s,
            exit_code=self._exit_code(state),
            spec=book.spec if book is not None else None,
            checkpoint=account.checkpoint if account is not None else None,
            submitted_s=submitted_s,
            native=self.wrong or (account.native if account is not None else ""),
        )

    @property
    def wrong(self) -> str:
        """What cannot be read of it."""
        return self.trouble if self.unread is None else str(self.unread)

    @property
    def _since_s(self) -> Seconds:
        """When it came into its state, as far as it says: nothing of a start is older than it, or still to come."""
        told_s = self.account.since_s if self.account is not None and self.account.epoch == self.epoch else 0.0
        return max(min(told_s, time.time()), self.book.granted_s if self.book is not None else 0.0)

    def _exit_code(self, state: JobState) -> int | None:
        return None if self.end is None or state is JobState.LOST or state.holds else self.end.exit_code


class Records:
    """All jobs, kept in memory and refreshed by `scan`."""

    def __init__(self, books: Books, folders: JobFolders, slots: Mapping[str, tuple[int, ...]]) -> None:
        """`slots`: the GPU indices that each node has."""
        self._books, self._folders, self._slots = books, folders, slots
        self._known: dict[JobId, Record] = {}
        self._may: Mapping[JobId, Mapping[str, tuple[int, ...]]] = {}  #: of the unsure

    def scan(self) -> list[Record]:
        """Every job, by name. Raises OSError when the cluster's own folders cannot be read."""
        stamps = self._books.stamps()
        names = self._folders.jobs()
        self._known = {job: self._refreshed(job, self._known.get(job), stamps.get(job)) for job in names}
        return self._supposed([self._known[name] for name in sorted(self._known)])

    def _supposed(self, records: list[Record]) -> list[Record]:
        """With what the unsure may hold: all that nobody else was seen to hold since they are unsure."""
        known = gpus_of(record.slots for record in records if not record.unsure)
        may = {}
        for record in records:
            if record.unsure:
                before = self._may.get(record.id, self._slots)
                may[record.id] = _without(before, known)
        self._may = may
        return [replace(record, may=may.get(record.id, EMPTY)) for record in records] if may else records

    def one(self, job: JobId) -> Record | None:
        """One job, read now; None where there is no such folder. One that cannot be looked into is one."""
        try:
            self._folders.owner(job)
        except FileNotFoundError:
            return None
        except Unbelievable:
            pass  # whatever its owner did to it, it can be cancelled
        record = self._known[job] = self._refreshed(job, self._known.get(job), None)
        return record

    def _refreshed(self, job: JobId, known: Record | None, stamp: tuple[int, int] | None) -> Record:
        if known is None or not known.settled or stamp is None or known.stamp != stamp:
            known = self._read(job, known, stamp)
        if known.unread is not None and self._books.lives(job):
            return self._told(replace(known, lives=True))
        if known.final:
            return replace(known, lives=False)
        assert known.book is not None
        if self._lives(job, known.book):
            return self._told(replace(known, lives=True))
        # Another arbiter may have seen to the end, and to more, since its book was read.
        known = self._read(job, known, None)
        return replace(known, lives=False) if known.final else self.over(known)

    def over(self, record: Record) -> Record:
        """A start of which nothing lives. The lock was asked first: what a dying supervisor wrote last is not
        missed."""
        return self._told(replace(record, lives=False, over_s=record.over_s or time.time()))

    def _read(self, job: JobId, known: Record | None, stamp: tuple[int, int] | None) -> Record:
        begun_ns = time.time_ns()
        book, kept, odd = self._book(job)
        found = Record(
            id=job,
            folder=self._folders.path_of(job),
            book=book,
            unread=odd if isinstance(odd, Unreadable) else None,
            trouble="" if odd is None else str(odd),
            stamp=stamp or (0, 0),
            settled=kept and stamp is not None and begun_ns - stamp[0] > _TICK_NS,
            kept=kept,
        )
        if known is None or book is None or known.epoch != book.epoch:
            return found
        return replace(found, said=known.said, over_s=known.over_s)

    def _lives(self, job: JobId, book: Book) -> bool:
        if not book.older:
            return self._books.lives(job)
        try:
            return self._folders.older_lives(job)
        except Unbelievable:
            return True  # until the opposite is shown
        except FileNotFoundError:
            return False

    def _told(self, record: Record) -> Record:
        """With the newest word of its supervisor that can be believed."""
        said, trouble = record.said, ""
        try:
            found = self._folders.account(record.id)
            if found is not None and record.epoch in (0, found.epoch):  # 0: its book does not tell
                said = found
        except FileNotFoundError as error:
            trouble = f"{error.filename} is missing"
        except Unbelievable as odd:
            trouble = str(odd)
        return replace(record, said=said, trouble=trouble)

    def _book(self, job: JobId) -> tuple[Book | None, bool, Exception | None]:
        """(its book, whether it is written, what is wrong)."""
        try:
            book = self._books.read(job)
            return (book, True, None) if book is not None else (self.older(job), False, None)
        except (Unbelievable, FileNotFoundError) as odd:
            return None, True, odd

    def older(self, job: JobId) -> Book:
        """Made of what a version before left in its folder. Raises Unbelievable, OSError."""
        return self._folders.older_book(job, self._slots)


def gpus_of(held: Iterable[Mapping[str, Iterable[int]]]) -> dict[str, set[int]]:
    """Together, by node."""
    found: dict[str, set[int]] = {}
    for slots in held:
        for node, indices in slots.items():
            found.setdefault(node, set()).update(indices)
    return found


def _without(slots: Mapping[str, tuple[int, ...]], taken: Mapping[str, Collection[int]]) -> dict[str, tuple[int, ...]]:
    return {node: tuple(i for i in held if i not in taken.get(node, ())) for node, held in slots.items()}
