"""Themis in the catalogue."""

from __future__ import annotations

from policy.contract import Entry
from policy.themis.options import OPTIONS

ENTRIES = (
    Entry(
        name="themis",
        summary="Finish-time fairness by partial-allocation auctions over leased GPUs.",
        call="policy.themis.round:decide",
        weighs=True,
        idle=("demand",),
        bids="policy.themis.bidding",
        paper="Mahajan et al., Themis: Fair and Efficient GPU Cluster Scheduling, NSDI 2020",
        section="3, 4, Pseudocode 1",
        needs=("throughput", "work.total or a loss forecast (else a rule stands in)", "history.active_apps for N_avg"),
        guarantees=(
            "the winners maximise the product of 1/rho over the bids (unless the solver was stopped: then it says so)",
            "an app that holds nothing wins over all that hold GPUs under a lease",
            "work-conserving: what nobody won or paid back goes to apps whose rho it lowers, then to whoever is faster",
            "a GPU won is the app's own for a lease",
        ),
        options=OPTIONS,
        notes=(
            "c of Pseudocode 1, line 8, is printed upside down: here it is at most 1",
            "truthful in expectation only as far as valuations scale with the GPUs; the elapsed time in T_sh, "
            "the largest useful gang and indivisible GPUs break Theorem 3.2's premise",
        ),
    ),
)
