"""What the capacity scheduler says of a tree of queues, of 16 GPUs in the default partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.yarn_bridge.memory_site import amounts

WHOLE = {"yarn.io/gpu": 16, "memory-mb": 65536, "vcores": 32}


def gpus(number: int) -> dict[str, Any]:
    return amounts({"yarn.io/gpu": number})


def queue(name: str, share: float, *children: dict[str, Any], most: int = 16, **more: Any) -> dict[str, Any]:
    """`more`: used, least and bulk (memory and cores that it may hold), the rest as the scheduler says it."""
    limits = {
        "effectiveMinResource": gpus(more.pop("least", 0)),
        "effectiveMaxResource": amounts(WHOLE | {"yarn.io/gpu": most} | more.pop("bulk", {})),
    }
    usage = {"resourceUsagesByPartition": [{"used": gpus(more.pop("used", 0))}]}
    capacities = {"queueCapacitiesByPartition": [limits]}
    found = {"queueName": name, "capacity": share, "capacities": capacities, "resources": usage, **more}
    return {**found, "queues": {"queue": list(children)}} if children else found


def scheduler(*queued: dict[str, Any], partitions: Sequence[str] = ("", "gpu")) -> dict[str, Any]:
    sizes = {each: gpus(16) if each else amounts(WHOLE) for each in partitions}
    parts = [{"partitionName": each, "effectiveMaxResource": size} for each, size in sizes.items()]
    whole = {"queueCapacitiesByPartition": parts}
    return {"type": "capacityScheduler", "queueName": "root", "capacities": whole, "queues": {"queue": list(queued)}}
