"""When what a cluster tells of is looked at: as soon as it has settled, for what happens together is one round.

An event that comes alone is looked at one short wait after it was seen; a burst (a user's loop of submissions) when it
pauses, or when its first event is `debounce_s` old. An end that is awaited is looked at at once: what waits for its
GPUs stands still.
"""

from __future__ import annotations

from policy.model import Seconds

#: How often a cluster is asked whether something happened: at most, and at least.
CLOSELY_S, SELDOM_S = 0.03, 0.25
#: Asking takes no more than one part in so many of the time: a file beside us is asked often, one behind SSH seldom.
_SHARE = 100.0


class News:
    """Of one cluster, from what its `Noticing.noticed` answers; `now_s` by a clock that never jumps."""

    def __init__(self, debounce_s: Seconds) -> None:
        self._debounce_s = debounce_s
        self._last: object = None
        self._since_s: Seconds | None = None  #: when the first event was seen that nobody was told of

    def settled(self, seen: object, now_s: Seconds, *, awaited: bool) -> bool:
        """Whether to look now. `awaited`: whether something was asked to leave."""
        came = self._last is not None and seen != self._last
        self._last = seen
        if came and self._since_s is None:
            self._since_s = now_s
        if self._since_s is None or (came and not awaited and now_s - self._since_s < self._debounce_s):
            return False
        self._since_s = None
        return True

    def wait_s(self, took_s: Seconds, *, awaited: bool) -> Seconds:
        """Until it is asked again. `took_s`: how long the last answer took."""
        if awaited or self._since_s is not None:
            return CLOSELY_S
        return min(max(took_s * _SHARE, CLOSELY_S), SELDOM_S)
