"""Hadoop YARN: the cluster's REST interfaces as typed clients, and the adapter that is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what runs on the nodes lies in this package too, and needs nothing of the arbiter's
    from horae.port import ClusterPort


def connect(options: Mapping[str, Any]) -> ClusterPort:
    """Entry point `horae.clusters: yarn`. Raises BadInput for options."""
    from yarn_bridge.adapter import YarnCluster
    from yarn_bridge.options import parse_options

    return YarnCluster(parse_options(options))
