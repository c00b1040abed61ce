"""What the arbiter asks before each decision: which apps of the pool have a scheduler of their own.

From the journal's ledger alone, so that a restart, a replay and a second reader see the same. A pure function of it:
`horae.arbiter` takes it as its `apps`.
"""

from __future__ import annotations

from dataclasses import replace

from horae.journal import Ledger
from horae.sweeps.variable import VARIABLES
from policy.model import App


def apps(ledger: Ledger, pool: str) -> tuple[App, ...]:
    """The pool's live sweeps, by name. A variable that is no scheduler makes its job a plain one."""
    VARIABLES.forget(ledger)
    found: dict[str, App] = {}
    for record in sorted(ledger.live(pool), key=lambda r: (r.submitted_s, r.id)):
        if record.app_key in found:
            continue
        said = VARIABLES.of(record)
        if said is not None and said.app is not None:
            found[record.app_key] = replace(said.app, name=record.app_key)
    return tuple(found[name] for name in sorted(found))
