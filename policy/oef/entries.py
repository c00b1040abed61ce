"""OEF in the catalogue."""

from policy.contract import Entry, Option

_OPTIONS = (
    Option("quantum", float, 300.0, "length of a round, in which whole GPUs stand for fractions", low=1.0, unit="s"),
    Option("demand_caps", bool, True, "a tenant gets no more than its jobs can use (false: as in the paper)"),
)
_WIDE = "a gang wider than its tenant's part, which smaller gangs of the tenant use, runs on what others leave over"
_PAPER = "OEF: Optimal Resource Efficiency with Fairness in Heterogeneous GPU Clusters (Middleware 2024)"

ENTRIES = (
    Entry(
        name="oef-noncooperative",
        summary="Every tenant the same normalised throughput, as high as possible.",
        call="policy.oef.policy:decide_non_cooperative",
        weighs=True,
        paper=_PAPER,
        section="§4.2.1 (Eq. 9), §4.2.3, §4.2.4, §4.3, §4.4",
        needs=("throughput",),
        guarantees=(
            "equal normalised throughput per weight (among tenants below their demand)",
            "strategy-proof against overstated speed-ups; understating them can pay",
            "pareto-efficient",
        ),
        options=_OPTIONS,
        quantum=True,
        notes=(
            "demand caps by progressive filling are an addition: the paper has none",
            "Theorem 5.4 covers overstating only; profiles that are measured, not reported, are the defence",
            _WIDE,
        ),
    ),
    Entry(
        name="oef-cooperative",
        summary="The highest total throughput at which no tenant prefers another's share.",
        call="policy.oef.policy:decide_cooperative",
        weighs=True,
        paper=_PAPER,
        section="§4.2.2 (Eq. 10), §4.2.3, §4.2.4, §4.3, §4.4",
        needs=("throughput",),
        guarantees=(
            "envy-free, and sharing incentive (Theorem 5.1), of job types",
            "no envy-free shares have a larger total (Theorem 5.3); others can be better for everybody",
        ),
        options=_OPTIONS,
        quantum=True,
        notes=(
            "Eq. 10c is printed as a tautology; the pairwise form of Theorem 5.1 is used",
            "Theorem 5.2 (adjacent GPU types, n + k - 1 non-zeros) can fail; the certificate does not claim it",
            "demand caps are an addition: nobody envies what it could use, and the total is nearly the largest",
            _WIDE,
        ),
    ),
)
