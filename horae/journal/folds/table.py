"""Which function folds which kind of event, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from horae.journal.form import Draft, Event, Kind
from horae.journal.ledger import JobRecord, Ledger, PoolRecord

D = TypeVar("D", bound=Draft)


class Folds(dict[Kind, Callable[[Ledger, Event, Any], None]]):
    """By kind. The decorators take what tells the event: its class, which the function's last argument is."""

    def on(self, kind: type[D]) -> Callable[[Callable[[Ledger, Event, D], None]], None]:
        def register(fold: Callable[[Ledger, Event, D], None]) -> None:
            self[kind.kind] = fold

        return register

    def of_job(self, kind: type[D]) -> Callable[[Callable[[Ledger, JobRecord, Event, D], None]], None]:
        """With the event's job, where it was not forgotten meanwhile, which events of a late outcome may find."""

        def register(fold: Callable[[Ledger, JobRecord, Event, D], None]) -> None:
            def found(ledger: Ledger, event: Event, told: D) -> None:
                record = ledger.jobs.get(event.job or "")
                if record is not None:
                    fold(ledger, record, event, told)

            self[kind.kind] = found

        return register

    def of_pool(self, kind: type[D]) -> Callable[[Callable[[Ledger, PoolRecord, Event, D], None]], None]:
        """With the event's pool."""

        def register(fold: Callable[[Ledger, PoolRecord, Event, D], None]) -> None:
            def found(ledger: Ledger, event: Event, told: D) -> None:
                fold(ledger, pool_of(ledger, event), event, told)

            self[kind.kind] = found

        return register


def pool_of(ledger: Ledger, event: Event) -> PoolRecord:
    assert event.pool is not None
    return ledger.pools.setdefault(event.pool, PoolRecord())
