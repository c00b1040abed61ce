"""Horae inside a training job: resume, resize without the model noticing, checkpoint when asked, leave with 86.

Standard library only, Python 3.7+; this folder can be copied next to a training script and imported by itself.
Start with `Training` (training.py). Framework adapters are in `frameworks/`, each importing its framework lazily.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sdk.batches import MicroBatch, Sampler, derived_seed, micro_batches, share_of
    from .sdk.environment import Environment
    from .sdk.ranks import RankLost, connect
    from .sdk.training import Step, Stopped, Training
    from .stores.store import Store, open_store, register_store

__all__ = [
    "Environment",
    "MicroBatch",
    "RankLost",
    "Sampler",
    "Step",
    "Stopped",
    "Store",
    "Training",
    "connect",
    "derived_seed",
    "micro_batches",
    "open_store",
    "register_store",
    "share_of",
]

_HOMES = {
    "sdk.batches": ("MicroBatch", "Sampler", "derived_seed", "micro_batches", "share_of"),
    "sdk.environment": ("Environment",),
    "sdk.ranks": ("RankLost", "connect"),
    "stores.store": ("Store", "open_store", "register_store"),
    "sdk.training": ("Step", "Stopped", "Training"),
}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: the supervisor shares this package and starts in milliseconds."""
    for module, names in _HOMES.items():
        if name in names:
            import importlib

            return getattr(importlib.import_module("." + module, __name__), name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
