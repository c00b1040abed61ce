"""Gandiva-fair and the two lotteries in the catalogue."""

from policy.contract import Entry, Option

_PAPER = "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep Learning (EuroSys 2020)"
_OPTIONS = (
    Option("quantum", float, 60.0, "length of a turn; at least twenty restarts long", low=1.0, unit="s"),
    Option(
        "load_threshold", float, 0.3, "difference of two nodes' ticket loads that moves a job, to the mean", low=0.0
    ),
    Option("migration_threshold", float, 0.2, "gain in progress that moves a job to another GPU type", low=0.0),
    Option("migrations", int, 1, "most jobs moved a quantum", low=0),
    Option("trading", bool, True, "tenants exchange GPU types"),
    Option("trade_threshold", float, 0.0, "gain in speed-up below which no trade is made", low=0.0),
)

ENTRIES = (
    Entry(
        name="gandiva-fair",
        summary="Tickets: tenants take turns in proportion, and trade GPU types when both gain.",
        call="policy.gandiva_fair.policy:decide_gandiva_fair",
        weighs=True,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§3.1 to §3.5, Algorithms 1 and 2",
        needs=("throughput (for trading)",),
        guarantees=(
            "GPU time proportional to tickets among tenants with enough jobs, within one quantum a gang",
            "no trade leaves a tenant below its fair share",
        ),
        options=_OPTIONS,
        quantum=True,
        notes=(
            "what is traded is time, any fraction of a GPU: the paper trades whole GPUs, which nobody has where "
            "tenants outnumber fast GPUs",
            "the second price is among those who still have slow GPUs to pay with (OEF §2.4 plays the same rounds)",
        ),
    ),
    Entry(
        name="lottery",
        summary="Gang-aware lottery: a winner that does not fit keeps its claim.",
        call="policy.gandiva_fair.policy:decide_lottery",
        weighs=True,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§3.1, Table 2",
        guarantees=("GPU time proportional to tickets in the long run",),
        options=_OPTIONS,
        quantum=True,
        notes=("a winner that already runs is queued for the next quanta, at most 100 times: the paper does not say",),
    ),
    Entry(
        name="lottery-backfill",
        summary="Lottery with backfill: a winner that does not fit is skipped. Unfair to wide gangs.",
        call="policy.gandiva_fair.policy:decide_lottery_backfill",
        weighs=True,
        one_type=True,
        idle=("requested",),
        paper=_PAPER,
        section="§3.1, Table 2",
        options=_OPTIONS,
        quantum=True,
        notes=("taken literally it gives 80/46/7 % in Table 2's example, not the printed 72/37/12",),
    ),
)
