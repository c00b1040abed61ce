"""The embedded cluster: virtual nodes with GPU slots on this machine, jobs that are real processes.

Every job has a folder (`horae/elastic/supervisor/jobfolder.py`); the folders are the cluster's whole memory, so an
arbiter
that restarts, or a second one, sees what the first saw. Each running job has a supervisor of its own (`horae-exec`)
that outlives the arbiter. See `adapter.py` for the port and `options.py` for what can be configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.port import ClusterPort


def connect(options: Mapping[str, Any]) -> ClusterPort:
    """The local cluster that `options` describe (entry point `local`). Raises BadInput."""
    from horae.local import confine
    from horae.local.adapter import LocalCluster
    from horae.local.options import parse

    read = parse(options)
    return LocalCluster(read, confine.asked(read.state))
