"""The limits of Horae's queue as the scheduler tells them, asked for now and then: they change with a refresh only."""

from __future__ import annotations

from horae.port import PortError
from policy.model import BadInput, Gpus
from yarn_bridge.clients.queues import Queues, queues
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.jobs.room import Ceiling, ceiling
from yarn_bridge.options import Options

#: what others use in the queue is as old as this at most
_EVERY_S = 20.0


class QueueLimits:
    def __init__(self, options: Options, manager: ResourceManager) -> None:
        self._options, self._manager = options, manager
        self._asked_s = float("-inf")
        self._queues: Queues | None = None
        self._held: Gpus = 0  #: ours, when that was asked
        self.why = ""  #: why they are not known, or not anew

    def forget(self) -> None:
        """Ask at the next chance."""
        self._asked_s = float("-inf")

    def ceiling(self, ours: Gpus, now_s: float) -> Ceiling | None:
        """None where there is no limit, or nobody could tell yet. What was told last stands while nobody tells."""
        if now_s - self._asked_s >= _EVERY_S:
            self._asked_s = now_s
            self._ask(ours)
        if self._queues is None:
            return None
        try:
            return ceiling(self._queues, self._options.queue, self._held)
        except BadInput as error:
            self.why = str(error)
            return None

    def _ask(self, ours: Gpus) -> None:
        try:
            self._queues, self._held = queues(self._manager.scheduler()), ours
            self.why = ""
        except PortError as error:
            self.why = error.text
        except BadInput as error:
            self.why = str(error)
