"""A ResourceManager that has just started knows its applications at once, and a node only when that has come back.

Until then the cluster cannot be read whole: no job is lost because its node has not said a word yet. One that cannot
reach its state store serves its web pages before it has read it, and names neither nodes nor applications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from horae.port import TryLater
from policy.model import Health, Node
from yarn_bridge.clients.records import App, ClusterInfo, NodeReport

#: NodeManagers try again every 30 s by default; one that is not back by then is taken for lost
_PATIENCE_S = 120.0
#: keeping a new application takes milliseconds; clocks may be apart
_KEPT_S = 20.0


class RollCall:
    def __init__(self) -> None:
        self._since_s: float | None = None

    def check(
        self, reports: Sequence[NodeReport], known: Sequence[Node], now_s: float, info: Callable[[], ClusterInfo]
    ) -> None:
        """Raises TryLater while nodes are missing that were there in the last whole observation (`known`), and
        while the ResourceManager is not active, however long that is. `info`: asked only where something is missing."""
        told = {report.host for report in reports}
        missing = [node.name for node in known if node.name not in told and node.health is not Health.DOWN]
        if missing or not reports:
            about = info()
            if about.ha_state not in {"ACTIVE", ""}:
                self._since_s = None
                raise TryLater(
                    f"the ResourceManager answers and is not active ({about.ha_state}): "
                    f"it waits for its state store ({about.store}); does ZooKeeper run?",
                    retry_after_s=5.0,
                )
        if not missing:
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < _PATIENCE_S:
            raise TryLater(
                f"the ResourceManager does not know {', '.join(missing[:8])}: it was started anew, and waits for them"
            )


def unsaved(apps: Iterable[App], now_s: float) -> list[str]:
    """Applications that the ResourceManager has taken and cannot write down, one sentence each."""
    return [
        f"{app.id} ({app.name}) waits since {now_s - app.submitted_s:.0f} s for the ResourceManager to write it into "
        "its state store (NEW_SAVING): does ZooKeeper run?"
        for app in apps
        if app.state == "NEW_SAVING" and 0 < app.submitted_s < now_s - _KEPT_S
    ]
