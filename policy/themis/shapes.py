"""Bundles of GPUs without node names: what a bid is worth depends on nothing else.

A bundle is a sorted tuple of chunks, one chunk a node; two bundles of one shape are worth the same to every app, so
racks are numbered by first appearance and values are remembered by shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policy.model import Gpus, GpuType


class Chunk(NamedTuple):
    """GPUs on one node."""

    gpu_type: GpuType
    rack: str
    gpus: Gpus


Bundle = tuple[Chunk, ...]


def ordered(chunks: Iterable[Chunk]) -> tuple[Bundle, tuple[int, ...]]:
    """The shape of `chunks` and, for each chunk of the shape, which of `chunks` it is.

    Largest first; racks are renamed `0`, `1`, ... so that equal shapes compare equal.
    """
    by_rack: dict[str, list[tuple[Gpus, GpuType, int]]] = {}
    for i, chunk in enumerate(chunks):
        if chunk.gpus > 0:
            by_rack.setdefault(chunk.rack, []).append((-chunk.gpus, chunk.gpu_type, i))
    if len(by_rack) == 1:
        (members,) = by_rack.values()
        members.sort()
        return tuple([Chunk(t, "0", -g) for g, t, _ in members]), tuple([i for _, _, i in members])
    racks = sorted((sorted(members) for members in by_rack.values()), key=lambda r: [(g, t) for g, t, _ in r])
    named = sorted((g, t, rack, i) for rack, members in enumerate(racks) for g, t, i in members)
    return tuple([Chunk(t, str(r), -g) for g, t, r, _ in named]), tuple([i for _, _, _, i in named])


def canonical(chunks: Iterable[Chunk]) -> Bundle:
    """The shape of `chunks`."""
    return ordered(chunks)[0]


def size(bundle: Sequence[Chunk]) -> Gpus:
    return sum([c.gpus for c in bundle])


def steps(most: int, share: float) -> Iterator[int]:
    """1, 2, ... `most`; once a step can be the `share` of where it begins, that far. The last is `most`."""
    at = 1
    while at < most:
        yield at
        at += max(int(at * share), 1)
    if most > 0:
        yield most
