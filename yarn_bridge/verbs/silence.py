"""A daemon that takes requests and answers none of them: whoever asks it next waits as long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from horae.port import PortError, TryLater
from horae.untrusted import Unbelievable
from yarn_bridge.clients.http import Unanswered

T = TypeVar("T")


class Silence:
    """Of several steps, each of another job: after one that waited in vain none is tried. Threads may share it."""

    def __init__(self) -> None:
        self.of: Unanswered | None = None

    def tried(self, step: Callable[[], T]) -> T | PortError:
        """What the step gives, or why it failed."""
        if self.of is not None:
            return TryLater(f"not tried: {self.of.text}")
        try:
            return step()
        except Unanswered as error:
            self.of = error
            return error
        except PortError as error:
            return error
        except Unbelievable as error:
            return TryLater(str(error))
