"""Several clients as one: each operation by the first in its order that can, the next one while that is away.

A client that is away (slurmrestd down, a token that ended, a child that died) is left alone for a while that doubles
up to a minute; its operations go by the next one, and the observation's notes and the doctor say so. slurmctld away
is another matter: then nobody is asked before a pause that doubles up to `AWAY_MOST_S`. A write of unknown fate is
not sent again by another client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import TypeVar

from horae.port import PortError, TryLater
from slurm_plugin.clients.base import CannotSay, Client, ClientAway, Operation
from slurm_plugin.clients.pace import Pace
from slurm_plugin.errors import ControllerAway
from slurm_plugin.records import End, Facts, JobRow, NodeRow
from slurm_plugin.writes import Verb, Write

AWAY_FIRST_S, AWAY_MOST_S = 0.25, 5.0
REST_FIRST_S, REST_MOST_S = 1.0, 60.0
#: the first line of that kind: what its user wrote stands behind it, and in one line
_STATE = re.compile(r"^ +JobState=(\S+)", re.MULTILINE)
#: Of a job that has ended and whose nodes have not said so yet slurmctld takes a requeue, and loses its usage or,
#: before 26.05.4, itself; of one that has begun it takes a hold, and slurmdbd takes that for one never eligible.
_NOT_OF = {
    Verb.REQUEUE_HOLD: frozenset({"COMPLETING"}),
    Verb.HOLD: frozenset({"CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING"}),
}
_ODD = 10  #: notes of one look on records that were set aside
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """By which client an operation goes now, and why not by those before it."""

    operation: Operation
    client: str
    why: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Writes that belong together, in order: the first that fails ends it."""

    writes: tuple[Write, ...]
    doing: str  #: for people


@dataclass(slots=True)
class _Rest:
    until_s: float = 0.0
    length_s: float = 0.0
    why: str = ""


class Routes:
    """`order` names the clients to try for an operation, best first; those it leaves out follow as given."""

    def __init__(
        self,
        clients: Sequence[Client],
        pace: Pace,
        order: Mapping[Operation, Sequence[str]] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pace, self._clock = pace, clock
        self.clients = tuple(clients)
        self._order = {operation: _ordered(self.clients, order.get(operation, ())) for operation in Operation}
        self._resting: dict[str, _Rest] = {}
        self._away = _Rest()
        self._notes: list[str] = []

    # --- for people ---

    @property
    def calls(self) -> int:
        """Requests to slurmctld so far."""
        return self.pace.requests

    def notes(self) -> list[str]:
        """What went another way since the last time this was asked, and what still does."""
        told, self._notes = self._notes, []
        for client in self.clients:
            told += client.odd[:_ODD]
            if len(client.odd) > _ODD:
                told.append(f"{client.name}: {len(client.odd)} records in all were set aside")
            client.odd.clear()
        now_s = self._clock()
        for rest in self._resting.values():
            if rest.until_s > now_s and rest.why not in told:
                told.append(rest.why)
        return told

    def choices(self) -> list[Choice]:
        found = []
        for operation in Operation:
            passed: list[str] = []
            for client in self._order[operation]:
                rest = self._resting.get(client.name)
                why = rest.why if rest and rest.until_s > self._clock() else client.lacks(operation)
                if not why:
                    found.append(Choice(operation, client.name, "; ".join(passed)))
                    break
                passed.append(why)
        return found

    # --- operations ---

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]:
        return self._by(Operation.JOBS, lambda client: client.jobs(partitions))

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        return self._by(Operation.NODES, lambda client: client.nodes(partitions))

    def facts(self) -> Facts:
        return self._by(Operation.FACTS, lambda client: client.facts())

    def ended(self, ids: Sequence[str]) -> Mapping[str, End]:
        return self._by(Operation.ENDED, lambda client: client.ended(ids))

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        """By whoever tells the facts."""
        return self._by(Operation.FACTS, lambda client: client.those(ids))

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        """By whoever tells the facts."""
        return self._by(Operation.FACTS, lambda client: client.standing(ids))

    def write(self, writes: Sequence[Write], doing: str) -> None:
        """In order, each by the first client that can; the first that fails ends it and is the error."""
        by_client = groupby(writes, lambda write: [client.name for client in self._able(write)])
        for _, group in by_client:
            batch = list(group)
            self._by(Operation(batch[0].verb.value), partial(_written, batch=batch, doing=doing), batch)

    def write_each(self, batches: Sequence[Batch]) -> list[PortError | None]:
        """Each batch as `write` does it, and what became of each. Their first writes go together, then the second of
        those whose first was done, and so on: as few conversations as the longest batch has writes."""
        errors: list[PortError | None] = [None] * len(batches)
        for step in range(max((len(batch.writes) for batch in batches), default=0)):
            left = [at for at, batch in enumerate(batches) if errors[at] is None and step < len(batch.writes)]
            ways: dict[tuple[str, ...], list[int]] = {}
            for at in left:
                write = batches[at].writes[step]
                ways.setdefault((write.verb, *(client.name for client in self._able(write))), []).append(at)
            for way in ways.values():
                writes = [(batches[at].writes[step], batches[at].doing) for at in way]
                for at, error in zip(way, self._together(writes), strict=True):
                    errors[at] = error
        return errors

    def _together(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        """Writes of one kind, that the same clients can do."""
        plain = [write for write, _ in writes]
        if plain[0].verb in _NOT_OF:
            return self._fitting(writes)
        return self._sent(plain, writes)

    def _fitting(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        """But for jobs in a state in which slurmctld, asked right before, would take such a write to their harm."""
        try:
            told = self.standing([write.job for write, _ in writes])
        except PortError as error:
            return [error] * len(writes)
        errors: dict[int, PortError | None] = {
            at: TryLater(f"{doing}: it is {found[1].lower()} by now")
            for at, (write, doing) in enumerate(writes)
            if (found := _STATE.search(told.get(write.job, ""))) and found[1] in _NOT_OF[write.verb]
        }
        left = [at for at in range(len(writes)) if at not in errors]
        if left:
            sent = [writes[at] for at in left]
            errors |= zip(left, self._sent([write for write, _ in sent], sent), strict=True)
        return [errors[at] for at in range(len(writes))]

    def _sent(self, plain: Sequence[Write], writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        try:
            errors = self._by(Operation(plain[0].verb.value), lambda client: client.write_each(writes), plain)
        except PortError as error:
            return [error] * len(writes)
        if (away := next((error for error in errors if isinstance(error, ControllerAway)), None)) is not None:
            self._pause(away)
        return errors

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        """Whom it could not be sent to. Raises PortError when it could be sent to none."""
        return self._by(Operation.SIGNAL, lambda client: client.signal(ids, name, doing))

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        """Which could not be ended. Raises PortError when none could."""
        return self._by(Operation.CANCEL, lambda client: client.cancel(ids, doing))

    def close(self) -> None:
        for client in self.clients:
            client.close()

    # --- how ---

    def _able(self, write: Write) -> list[Client]:
        operation = Operation(write.verb.value)
        return [client for client in self._order[operation] if not client.lacks(operation) and client.fits(write)]

    def _by(self, operation: Operation, call: Callable[[Client], T], batch: Sequence[Write] = ()) -> T:
        now_s = self._clock()
        if now_s < self._away.until_s:
            raise TryLater(f"waiting a little: {self._away.why}", retry_after_s=self._away.until_s - now_s)
        last: PortError | None = None
        for client in self._order[operation]:
            rest = self._resting.get(client.name)
            if (rest and now_s < rest.until_s) or client.lacks(operation):
                continue
            if not all(client.fits(write) for write in batch):
                continue
            try:
                done = call(client)
            except CannotSay as error:
                self._notes.append(f"{error.text}: by the next client")
                last = error
                continue
            except ClientAway as error:
                self._rest(client, error)
                last = error
                if error.unknown:
                    raise
                continue
            except ControllerAway as error:
                self._pause(error)
                raise
            except PortError:
                self._away = _Rest()  # slurmctld answers, if only to refuse
                raise
            self._away = _Rest()
            self._resting.pop(client.name, None)
            return done
        raise last or TryLater(f"no client has a way for {operation} now")

    def _rest(self, client: Client, error: ClientAway) -> None:
        rest = self._resting.setdefault(client.name, _Rest())
        rest.length_s = min(max(rest.length_s * 2, REST_FIRST_S), REST_MOST_S)
        rest.until_s = self._clock() + rest.length_s
        rest.why = f"{client.name} is away, its part goes by the next client: {error.text}"
        self._notes.append(rest.why)

    def _pause(self, error: ControllerAway) -> None:
        length_s = min(max(self._away.length_s * 2, AWAY_FIRST_S), AWAY_MOST_S)
        self._away = _Rest(self._clock() + length_s, length_s, error.text)
        error.retry_after_s = max(error.retry_after_s, length_s)


def _ordered(clients: Sequence[Client], names: Sequence[str]) -> tuple[Client, ...]:
    named = [client for name in names for client in clients if client.name == name]
    return (*named, *(client for client in clients if client not in named))


def _written(client: Client, batch: Sequence[Write], doing: str) -> None:
    client.write(batch, doing)
