"""What a user may set of the policy `themis`; names and defaults are those of the instance file."""

from __future__ import annotations

from dataclasses import dataclass

from policy.contract import Option
from policy.model import Seconds

OPTIONS = (
    Option("fairness_knob", float, 0.8, "f of §3.3.2: the worst 1 - f share of the apps bids", 0.0, 1.0),
    Option("lease", float, 600.0, "how long a GPU won is its app's own (§6.4)", 1e-3, unit="s"),
    Option(
        "payment",
        str,
        "randomised",
        "the hidden payment: in expectation exactly c of the win's value, or rounded down to whole gangs",
        choices=("randomised", "floor"),
    ),
    Option(
        "speedup",
        str,
        "table",
        "iteration times: the measured table, or Eq. 1's linear speed-up",
        choices=("table", "paper"),
    ),
    Option(
        "weigh",
        str,
        "apps",
        "what N_avg counts: apps alike, or each with its tenant's weight over the tenant's active apps",
        choices=("apps", "tenants"),
    ),
    Option("reference", str, None, "GPU type in which T_id is counted; default: the slowest the app can run on"),
    Option("deadline", float, 30.0, "an external bid older than this gives way to the cached table", 0.0, unit="s"),
    Option("trust", float, 2.0, "how many times better than measured an external bid may say to be", 1.0),
    Option("rows", int, 2000, "most rows of one bid; smaller offers are enumerated whole", 1),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The same, resolved."""

    fairness_knob: float = 0.8
    lease: Seconds = 600.0
    payment: str = "randomised"
    speedup: str = "table"
    weigh: str = "apps"
    reference: str | None = None
    deadline: Seconds = 30.0
    trust: float = 2.0
    rows: int = 2000
