"""What each Slurm can do by each client: one table, each line seen on real daemons of that release.

The fixtures under tests/slurm_plugin/recorded are what those daemons answered; `python tests/slurm_plugin/record.py`
records them anew. An operation that is missing here goes by the command line, which has all of them on every release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from slurm_plugin.clients.base import Operation as Op

_READS = frozenset({Op.JOBS, Op.NODES})
_WRITES = frozenset({Op.UPDATE, Op.RELEASE, Op.HOLD, Op.SIGNAL, Op.CANCEL})


@dataclass(frozen=True, slots=True)
class RestVersion:
    """One version of slurmrestd's interface (its data parser)."""

    can: frozenset[Op]
    lacks: Mapping[Op, str]  #: why, for people


@dataclass(frozen=True, slots=True)
class Release:
    """One generation of Slurm."""

    rest: tuple[str, ...]  #: interface versions that its slurmrestd serves and we know, newest first
    pyslurm: str  #: the pyslurm that was seen to work against it; empty: none from the package index


_NO_REQUEUE = "cannot requeue a job as held before v0.0.45"
_BARE: Mapping[Op, str] = MappingProxyType(
    {
        Op.UPDATE: "v0.0.38 cannot pin nodes: required_nodes is a disabled key",
        Op.RELEASE: "v0.0.38 releases with priority 1, behind every other job",
        Op.HOLD: "v0.0.38 is used for reading only",
        Op.REQUEUE_HOLD: _NO_REQUEUE,
        Op.SIGNAL: "v0.0.38 has no signal to the batch script alone",
        Op.CANCEL: "v0.0.38 ends one job a request",
    }
)
_MODERN: Mapping[Op, str] = MappingProxyType({Op.REQUEUE_HOLD: _NO_REQUEUE})

#: newest first: the order of negotiation
REST: Mapping[str, RestVersion] = MappingProxyType(
    {
        "v0.0.45": RestVersion(_READS | _WRITES | {Op.REQUEUE_HOLD}, MappingProxyType({})),
        "v0.0.44": RestVersion(_READS | _WRITES, _MODERN),
        "v0.0.43": RestVersion(_READS | _WRITES, _MODERN),
        "v0.0.42": RestVersion(_READS | _WRITES, _MODERN),
        "v0.0.41": RestVersion(_READS | _WRITES, _MODERN),
        "v0.0.38": RestVersion(_READS, _BARE),
    }
)

RELEASES: Mapping[tuple[int, int], Release] = MappingProxyType(
    {
        (22, 5): Release(("v0.0.38",), pyslurm=""),
        (24, 11): Release(("v0.0.42", "v0.0.41"), pyslurm=""),
        (26, 5): Release(("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42"), pyslurm="25.11.2"),
    }
)

#: what pyslurm has no call for, or gets wrong, on every release
PYSLURM_LACKS: Mapping[Op, str] = MappingProxyType(
    {
        Op.FACTS: "pyslurm does not show partitions, topology and slurm.conf as one",
        Op.UPDATE: "pyslurm cannot change a job's number of nodes, nor clear its node list",
        Op.ENDED: "slurmdbd is asked by sacct",
    }
)
REST_LACKS: Mapping[Op, str] = MappingProxyType(
    {
        Op.FACTS: "slurmrestd does not show slurm.conf before v0.0.45",
        Op.ENDED: "slurmdbd is asked by sacct",
    }
)

#: `client: auto`: what is cheapest for slurmctld and quickest comes first (benchmarks/results/slurm_observe.json)
CHEAPEST: Mapping[Op, tuple[str, ...]] = MappingProxyType(
    {
        Op.SIGNAL: ("pyslurm", "slurmrestd", "command"),
        Op.CANCEL: ("pyslurm", "slurmrestd", "command"),
    }
)
