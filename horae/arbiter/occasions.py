"""When the policy of each pool is asked: what it would know changed, a lease or a veto ran out, or it was long ago.

May be forgotten at any moment: every pool then is asked once more.
"""

from __future__ import annotations

from collections.abc import Iterable

from horae.arbiter import round
from horae.arbiter.decide.album import SnapshotSources
from horae.arbiter.modes import mode_of
from horae.arbiter.observe import absences
from horae.config import Config, Pool
from horae.journal import Ledger
from policy.model import Seconds


class Occasions:
    def __init__(self, config: Config) -> None:
        self._changed: set[str] = set()
        self._asked_s: dict[str, Seconds] = {}
        self._vetoes_end_s: dict[str, Seconds] = {}  #: when the first veto of a pool's newest admission runs out
        self._room: dict[str, object] = {}  #: what each pool's policy was asked about last: nodes and caps
        self.change_all(config)

    def change(self, pools: Iterable[str]) -> None:
        """Something to decide about happened there."""
        self._changed.update(pools)

    def change_all(self, config: Config) -> None:
        self._changed = {pool.name for pool in config.pools}

    def asked(self, pool: str, now_s: Seconds) -> None:
        self._changed.discard(pool)
        self._asked_s[pool] = now_s

    def vetoed(self, pool: str, ends_s: Iterable[Seconds]) -> None:
        """The newest admission there has vetoes that end then."""
        self._vetoes_end_s[pool] = min(ends_s, default=0.0)

    def due(self, ledger: Ledger, config: Config, pool: Pool, view: SnapshotSources) -> bool:
        """Whether the pool's policy is to be asked now."""
        if not mode_of(ledger, pool).decides:
            return False
        nodes = tuple(n for n in view.observation.nodes if view.pools.get(n.name) == pool.name)
        limits = tuple((quota.name, quota.gpus, quota.jobs) for quota in view.observation.quotas)
        away = {node: [time.name for time in times] for node, times in view.away.items()}
        room = (nodes, limits, view.observation.caps, away)
        other = self._room.get(pool.name) != room
        self._room[pool.name] = room
        last_s = self._asked_s.get(pool.name, float("-inf"))
        return (
            other
            or pool.name in self._changed
            or view.now_s - last_s >= config.rounds.quiet_s
            or absences.turned(view.away, last_s, view.now_s)
            or round.ran_out(ledger, pool.name, config, last_s, view.now_s)
            or last_s < self._vetoes_end_s.get(pool.name, 0.0) <= view.now_s
        )
