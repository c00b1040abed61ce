"""The baselines in the catalogue."""

from __future__ import annotations

from policy.contract import Entry, Option

ENTRIES = (
    Entry(
        name="fifo",
        summary="First in, first out; a gang that does not fit stops the queue.",
        call="policy.baselines.fifo:decide",
        paper="-",
        section="-",
        guarantees=("jobs start in the order of submission", "a running job is never stopped or resized"),
        notes=("jobs that can never run, and jobs held back by their own tenant's limit, stop nobody",),
    ),
    Entry(
        name="max-min",
        summary="Elastic water-filling: whoever has least, by weight, gets the next GPUs.",
        call="policy.baselines.max_min:decide",
        paper="Elastic Resource Sharing for Distributed Deep Learning (NSDI 2021), as a baseline",
        section="§2.2, §5.1",
        needs=("throughput (without it a job is taken to scale linearly)",),
        guarantees=("max-min fair in whole steps of the jobs' sizes", "work-conserving where gangs fit"),
        options=(
            Option("over", str, "tenant", "who is equal: tenants by weight, or all jobs", choices=("tenant", "job")),
        ),
        notes=("over=job is the baseline of AFS §5.1; the default shares between tenants first",),
    ),
)
