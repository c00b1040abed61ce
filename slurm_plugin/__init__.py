"""Slurm: observe, act, site hooks. `connect` is the entry point, `adapter.py` the port, `reading.py` judges."""

from slurm_plugin.adapter import SlurmCluster, connect

__all__ = ["SlurmCluster", "connect"]
