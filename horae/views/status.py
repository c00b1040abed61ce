"""How the arbiter is, in one picture: what `horae status` and the metrics begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import horae
from horae.arbiter.core import Core
from horae.arbiter.modes import mode_of
from horae.config import Mode
from horae.views import rows
from policy.model import Node, Seconds


@dataclass(frozen=True, slots=True)
class Status:
    """How the arbiter is."""

    version: str
    cluster: str
    state_dir: str
    stage: str
    stalled: str | None  #: why nothing is done
    stood_down: str | None
    rounds: int
    looked_ago_s: Seconds | None
    nodes: tuple[Node, ...]
    pool_of: Mapping[str, str]
    pools: tuple[rows.PoolRow, ...]
    modes: Mapping[str, Mode]
    alerts: Mapping[str, tuple[str, str, Seconds]]  #: what -> (text, remedy, since, wall time)
    live: int
    running: int
    notes: tuple[str, ...]


def status_of(core: Core) -> Status:
    ledger, config, now_s = core.ledger, core.config, core.now_s()
    view = core.view
    live = list(ledger.live())
    return Status(
        version=horae.__version__,
        cluster=core.capabilities.cluster,
        state_dir=str(config.state_dir),
        stage=core.stage.value,
        stalled=core.stalled,
        stood_down=ledger.stood_down,
        rounds=core.rounds,
        looked_ago_s=now_s - view.now_s if view is not None else None,
        nodes=view.observation.nodes if view is not None else (),
        pool_of=view.pools if view is not None else {},
        pools=tuple(rows.pool_row(ledger, p.name, now_s) for p in config.pools),
        modes={p.name: mode_of(ledger, p) for p in config.pools},
        alerts={k: (a.text, a.remedy, a.since_wall_s) for k, a in ledger.alerts.items()},
        live=len(live),
        running=sum(1 for r in live if r.state.holds),
        notes=(*core.capabilities.notes, *(view.observation.notes if view is not None else ())),
    )
