"""What each tenant has of a decision: its GPUs by type, and what its jobs make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policy.model import EMPTY, Allocation, GpuType, Job, JobName, Share
from policy.throughput import Throughput


class Holdings:
    """Of the tenants of `jobs`, in the order in which they come first; of `shares` where given, else of `allocation`.

    bundles  tenant -> GPUs by type
    values   tenant -> normalised throughput
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        allocation: Mapping[JobName, Allocation],
        shares: Mapping[JobName, Share] | None,
        speeds: Throughput,
    ) -> None:
        self.bundles: dict[str, dict[GpuType, float]] = {}
        self.values: dict[str, float] = {}
        for job in jobs:
            share: Share
            if shares is not None:
                share = shares.get(job.name, EMPTY)
                value = speeds.of_share(job, share)
            elif now := allocation.get(job.name):
                share = speeds.by_type(now)
                value = speeds.normalised(job, now)
            else:
                continue
            self._add(job.tenant, share, value)

    def _add(self, tenant: str, share: Share, value: float) -> None:
        bundle = self.bundles.get(tenant)
        if bundle is None:
            bundle = self.bundles[tenant] = {}
            self.values[tenant] = 0.0
        self.values[tenant] += value
        for gpu_type, gpus in share.items():
            bundle[gpu_type] = bundle.get(gpu_type, 0.0) + gpus
