"""How far the arbiter goes in each pool now: the configuration's word, unless an operator said otherwise since."""

from __future__ import annotations

from horae.config import Config, Mode, Pool
from horae.journal import Ledger


def mode_of(ledger: Ledger, pool: Pool) -> Mode:
    said = ledger.pool(pool.name).mode
    return Mode(said) if said is not None else pool.mode


def releasing(ledger: Ledger, pool: str) -> bool:
    """`horae release-all` is under way, or was the last word: every job is handed back, new ones too."""
    return ledger.pool(pool).releasing


def acts_anywhere(ledger: Ledger, config: Config) -> bool:
    """Whether anything in the cluster is ours to change, so that it must be claimed first."""
    return any(mode_of(ledger, pool).acts or releasing(ledger, pool.name) for pool in config.pools)
