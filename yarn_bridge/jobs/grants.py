"""Whether a grant can be carried out on the nodes as last seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from horae.port import Never, TryLater
from policy.model import Allocation, Health, Node

#: GPUs that are not free yet may be soon
_SOON_S = 0.5


def check_grant(
    allocation: Allocation, held: Mapping[str, int], nodes: Sequence[Node], taken: Mapping[str, int]
) -> None:
    """Raises Never for what can never be, TryLater for GPUs that are not free.

    `held`: what the job has already; `taken`: what all jobs of ours have; by node.
    """
    if not allocation or any(gpus < 1 for gpus in allocation.values()):
        raise Never("an allocation without GPUs cannot run anything")
    known = {node.name: node for node in nodes}
    for name, gpus in allocation.items():
        node = known.get(name)
        if node is None:
            raise Never(f"there is no node {name} with GPUs (there are {', '.join(known)})")
        if gpus > node.gpus:
            raise Never(f"node {name} has {node.gpus} GPUs; {gpus} cannot be granted there")
        if node.health is not Health.UP:
            raise TryLater(f"node {name} is {node.health}", retry_after_s=5.0)
        free = node.gpus - node.foreign - taken.get(name, 0) + held.get(name, 0)
        if gpus > free:
            raise TryLater(f"node {name} has {free} GPUs free; {gpus} were granted", retry_after_s=_SOON_S)
