"""What goes wrong with a connection's calls, by verb and by count, each fault once or a given number of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from horae.port import JobId, PortError, TryLater
from policy.model import Seconds


@dataclass(frozen=True, slots=True)
class Raise:
    """The call raises and nothing happens."""

    error: PortError


@dataclass(frozen=True, slots=True)
class LoseReply:
    """It happens, and the call raises all the same."""

    error: PortError = field(default_factory=lambda: TryLater("the answer was lost"))


@dataclass(frozen=True, slots=True)
class Drop:
    """The call returns and nothing happens: the message was lost."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The call returns at once and its effect comes later."""

    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Crash:
    """Calls `before` in the caller's place (it may never return), then goes on."""

    before: Callable[[], None]


Fault = Raise | LoseReply | Drop | Delay | Crash


@dataclass(slots=True)
class _Rule:
    verb: str
    fault: Fault
    call: int | None  #: the n-th call of the verb, from 1; None: any
    job: JobId | None
    times: int


class Faults:
    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self.calls: Counter[str] = Counter()

    def on(self, verb: str, fault: Fault, *, call: int | None = None, job: JobId | None = None, times: int = 1) -> None:
        """`verb` is a port method's name; `*` means any."""
        self._rules.append(_Rule(verb, fault, call, job, times))

    def clear(self) -> None:
        self._rules.clear()

    def next(self, verb: str, job: JobId | None) -> Fault | None:
        """Count this call and say what happens to it."""
        self.calls[verb] += 1
        for rule in self._rules:
            if (
                rule.times > 0
                and rule.verb in ("*", verb)
                and rule.call in (None, self.calls[verb])
                and rule.job in (None, job)
            ):
                rule.times -= 1
                return rule.fault
        return None
