"""AFS in the catalogue."""

from __future__ import annotations

from policy.contract import Entry, Option

PAPER = "Elastic Resource Sharing for Distributed Deep Learning (NSDI 2021)"

ENTRIES = (
    Entry(
        name="afs-l",
        summary="Apathetic Future Share, lengths known: GPUs to efficient jobs under contention, else to short ones.",
        call="policy.afs.afs_l:decide",
        weighs=False,
        idle=("packed",),
        paper=PAPER,
        section="§3.3, Algorithm 1; §4.4, Appendix E",
        needs=("throughput", "work.total"),
        guarantees=(
            "equal to Algorithm 1 walked in the order of submission, then name",
            "with network_packing on equal nodes: Propositions 1 and 2",
        ),
        options=(
            Option("tie", str, "submitted", "who wins when (3) ties", choices=("submitted", "shorter")),
            Option("unknown", str, "longest", "jobs of unknown length", choices=("longest", "refuse")),
            Option(
                "span",
                str,
                "ignore",
                "slowdown in the comparison: none, or of the narrowest span that a gang needs",
                choices=("ignore", "best"),
            ),
            Option("network_packing", bool, False, "regulate shares to divisors and multiples of a node (§4.4)"),
        ),
        notes=(
            "a job without GPUs precedes every job with some (stage one), also at exactly linear scaling",
            "the comparison is not transitive over all three-job cases, so the order of the walk is fixed",
        ),
    ),
    Entry(
        name="afs-p",
        summary="Apathetic Future Share, lengths unknown: turns of a unit under contention, else comparison (3).",
        call="policy.afs.afs_p:decide_p",
        weighs=False,
        paper=PAPER,
        section="§3.3 (Handling unknown job lengths)",
        needs=("throughput",),
        guarantees=("no job is passed over by more than one unit of each other job, while they do not all fit",),
        options=(Option("unit", float, 7200.0, "unit of time of stage one", low=1.0, unit="s"),),
        notes=("where (3) holds neither way the paper draws at random; here the tie rule decides",),
    ),
    Entry(
        name="afs-s",
        summary="AFS-P that knows of a job only the size at which it is fastest: max-min up to that size.",
        call="policy.afs.afs_p:decide_s",
        weighs=False,
        paper=PAPER,
        section="Appendix D (Sensitivity to throughput measurement)",
        needs=("throughput (its peak)",),
        guarantees=("max-min fair in GPUs up to each job's peak, once every job fits",),
        options=(Option("unit", float, 7200.0, "unit of time of stage one", low=1.0, unit="s"),),
    ),
)
