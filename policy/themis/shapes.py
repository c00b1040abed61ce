"""Bundles of GPUs without node names: what a bid is worth depends on nothing else.

A bundle is a sorted tuple of chunks, one chunk a node; two bundles of one shape are worth the same to every app, so
racks are numbered by first appearance and values are remembered by shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policy.model import Gpus, GpuType


class Chunk(NamedTuple):
    """GPUs on one node."""

    gpu_type: GpuType
    rack: str
    gpus: Gpus


Bundle = tuple[Chunk, ...]


def canonical(chunks: Iterable[Chunk]) -> Bundle:
    """The shape of `chunks`: largest first, racks renamed `0`, `1`, ... so that equal shapes compare equal."""
    kept = [c for c in chunks if c.gpus > 0]
    by_rack: dict[str, list[tuple[GpuType, Gpus]]] = {}
    for chunk in kept:
        by_rack.setdefault(chunk.rack, []).append((chunk.gpu_type, chunk.gpus))
    racks = sorted((sorted(members, key=lambda m: (-m[1], m[0])) for members in by_rack.values()), reverse=True)
    named = [Chunk(t, str(i), g) for i, members in enumerate(racks) for t, g in members]
    return tuple(sorted(named, key=lambda c: (-c.gpus, c.gpu_type, int(c.rack))))


def size(bundle: Sequence[Chunk]) -> Gpus:
    return sum(c.gpus for c in bundle)
