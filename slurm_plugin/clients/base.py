"""What the adapter asks of Slurm, as operations, and what a client of Slurm is: a set of routes, one an operation.

A client says which operations it has a route for, and whether a certain write fits it; `routes.Routes` asks the
preferred client first and the next one for what it cannot do. The command line can do all of them and comes last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from horae.port import PortError, TryLater
from slurm_plugin.errors import ControllerAway
from slurm_plugin.records import End, Facts, JobRow, NodeRow
from slurm_plugin.writes import Write


class Operation(StrEnum):
    JOBS = "jobs"  #: every job of the managed partitions, in one read
    NODES = "nodes"
    FACTS = "facts"  #: slurm.conf, partitions and topology as slurmctld has them
    UPDATE = "update"
    RELEASE = "release"
    HOLD = "hold"
    REQUEUE_HOLD = "requeuehold"
    SIGNAL = "signal"
    CANCEL = "cancel"
    ENDED = "ended"  #: slurmdbd's word on jobs that slurmctld forgot


class ClientAway(TryLater):
    """This way to Slurm does not work now (a daemon of its own, a token, a process); Slurm itself may.

    `done`: None when the request certainly did not reach Slurm, so that another client may send it; else what is
    not known about it. A write of unknown fate is never sent twice: the next observation tells.
    """

    def __init__(self, text: str, unknown: bool = False) -> None:
        self.unknown = unknown
        super().__init__(text)


class CannotSay(TryLater):
    """This client cannot give this answer as things are (an array it cuts off); another one can."""


class Client(Protocol):
    name: str
    odd: list[str]  #: notes on records that were set aside in reads; who tells them clears them

    def lacks(self, operation: Operation) -> str:
        """Why there is no route for it here; empty when there is one. Asks nobody."""
        ...

    def fits(self, write: Write) -> bool:
        """Whether this very write can be said, for an operation that there is a route for."""
        ...

    def describe(self) -> str:
        """What it is, for people: versions, address. Raises PortError when it does not work."""
        ...

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]: ...

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]: ...

    def facts(self) -> Facts: ...

    def write(self, writes: Sequence[Write], doing: str) -> None:
        """In order; the first that fails ends it and is the error."""
        ...

    def write_each(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        """Writes that have nothing to do with each other, with what each is for; what became of each. Raises
        ClientAway when this client is away, with none of them sent."""
        ...

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        """A signal to the batch shells of jobs; whom it could not be sent to. Who is gone already is no error."""
        ...

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        """Ends jobs. Which could not be, and why; who is gone is no error."""
        ...

    def ended(self, ids: Sequence[str]) -> Mapping[str, End]: ...

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        """These jobs as they are now, in one read for all; who is gone, or not understood, is left out."""
        ...

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        """What slurmctld has of each of these jobs, in its words; empty only where it says that there is none."""
        ...

    def close(self) -> None: ...


class OneByOne(ABC):
    """Writes of a client that says them one after the other."""

    @abstractmethod
    def _write(self, write: Write, doing: str) -> None:
        """Raises PortError."""

    def write(self, writes: Sequence[Write], doing: str) -> None:
        for write in writes:
            self._write(write, doing)

    def write_each(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        """Once the client, or slurmctld, is away the rest is not tried."""
        errors: list[PortError | None] = []
        for write, doing in writes:
            try:
                self._write(write, doing)
            except (ClientAway, CannotSay, ControllerAway) as error:
                if not errors:
                    raise
                return [*errors, *[error] * (len(writes) - len(errors))]
            except PortError as error:
                errors.append(error)
            else:
                errors.append(None)
        return errors


class Kept:
    """Rows of the last read, given again where they read the same: most of a queue does, and is judged once."""

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}

    def again(self, rows: Sequence[JobRow]) -> list[JobRow]:
        found = []
        for row in rows:
            before = self._rows.get(row.id)
            found.append(before if before == row and before is not None else row)
        self._rows = {row.id: row for row in found}
        return found
