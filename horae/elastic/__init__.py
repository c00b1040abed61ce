"""Horae inside a training job: resume, resize without the model noticing, checkpoint when asked, leave with 86.

Standard library only, Python 3.7+; this folder can be copied next to a training script and imported by itself.
Start with `Training` (training.py). Framework adapters are in `frameworks/`, each importing its framework lazily.
"""

from .batches import MicroBatch, Sampler, derived_seed, micro_batches, share_of
from .environment import Environment
from .ranks import RankLost, connect
from .stores import Store, open_store, register_store
from .training import Step, Stopped, Training

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
