"""The baselines in the catalogue."""

from __future__ import annotations

from policy.contract import Entry

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
)
