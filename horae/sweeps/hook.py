"""What the arbiter asks before each decision: which apps of the pool have a scheduler of their own.

From the journal's ledger alone, so that a restart, a replay and a second reader see the same. A pure function of it:
`horae.arbiter` takes it as its `apps`.
"""

from __future__ import annotations

from horae.journal import Ledger
from horae.sweeps.sweep import VARIABLE, from_text
from policy.model import App, BadInput


def apps(ledger: Ledger, pool: str) -> tuple[App, ...]:
    """The pool's live sweeps, by name. A variable that is no scheduler makes its job a plain one."""
    found: dict[str, App] = {}
    for record in sorted(ledger.live(pool), key=lambda r: (r.submitted_s, r.id)):
        text = record.spec.env.get(VARIABLE)
        if text is not None and record.app_key not in found:
            try:
                found[record.app_key] = from_text(record.app_key, text)
            except BadInput:
                continue
    return tuple(found[name] for name in sorted(found))
