"""Gavel in the catalogue."""

from policy.contract import Entry, Option

_PAPER = "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads (OSDI 2020)"
_ACCOUNTS = (
    "what was received counts from the last change of jobs, nodes or limits; what was owed until then goes with it"
)
_OPTIONS = (Option("quantum", float, 360.0, "length of a round", low=1.0, unit="s"),)

ENTRIES = (
    Entry(
        name="gavel-max-min",
        summary="Max-min of effective throughput relative to an equal share of each GPU type.",
        call="policy.gavel.policy:decide_max_min",
        weighs=True,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§4.1, §5",
        needs=("throughput",),
        guarantees=("sharing incentive (§4.4), over many rounds",),
        options=_OPTIONS,
        quantum=True,
        notes=(_ACCOUNTS,),
    ),
    Entry(
        name="gavel-finish-time",
        summary="The largest finish-time ratio rho (Themis' metric) is as small as it can be.",
        call="policy.gavel.policy:decide_finish_time",
        weighs=False,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§4.2, §5",
        needs=("throughput", "work.total"),
        guarantees=("min max rho under the fractions, to one part in a million",),
        options=_OPTIONS,
        quantum=True,
        notes=("rho is bisected over warm-started programs", "unknown lengths are taken to be the median", _ACCOUNTS),
    ),
    Entry(
        name="gavel-makespan",
        summary="All jobs done as early as possible.",
        call="policy.gavel.policy:decide_makespan",
        weighs=False,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§4.2, §5",
        needs=("throughput", "work.total"),
        guarantees=("least makespan under the fractions",),
        options=_OPTIONS,
        quantum=True,
        notes=("unknown lengths are taken to be the median", _ACCOUNTS),
    ),
    Entry(
        name="gavel-fifo",
        summary="First come first served, each on the type where it is fastest.",
        call="policy.gavel.policy:decide_fifo",
        weighs=False,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§4.2, §5",
        needs=("throughput",),
        options=_OPTIONS,
        quantum=True,
    ),
)
