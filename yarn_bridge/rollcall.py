"""A ResourceManager that has just started knows its applications at once, and a node only when that has come back.

Until then the cluster cannot be read whole: no job is lost because its node has not said a word yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.port import TryLater
from policy.model import Health, Node
from yarn_bridge.records import NodeReport

#: NodeManagers try again every 30 s by default; one that is not back by then is taken for lost
_PATIENCE_S = 120.0


class RollCall:
    def __init__(self) -> None:
        self._since_s: float | None = None

    def check(self, reports: Sequence[NodeReport], known: Sequence[Node], now_s: float) -> None:
        """Raises TryLater while nodes are missing that were there in the last whole observation (`known`)."""
        told = {report.host for report in reports}
        missing = [node.name for node in known if node.name not in told and node.health is not Health.DOWN]
        if not missing:
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < _PATIENCE_S:
            raise TryLater(
                f"the ResourceManager does not know {', '.join(missing[:8])}: it was started anew, and waits for them"
            )
