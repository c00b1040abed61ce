"""Slurm: observe, act, site hooks. `connect` is the entry point, `adapter.py` the port; `on_node/` is for its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm_plugin.adapter import SlurmCluster


def connect(options: Mapping[str, Any]) -> SlurmCluster:
    """Entry point `horae.clusters: slurm`. Raises BadInput for options, PortError when Slurm cannot be used so."""
    from slurm_plugin import adapter  # with its clients: the lab and the Submarine front end do without them

    return adapter.connect(options)
