"""What a user may set of the policy `themis`; names and defaults are those of the instance file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from policy.model import BadInput, Seconds

#: Rows that one app may bid; smaller offers are enumerated whole (see `policy.themis.rows`).
ROWS = 2000


@dataclass(frozen=True, slots=True)
class Options:
    fairness_knob: float = 0.8  #: f of §3.3.2: the worst 1 - f share of the apps bids
    lease: Seconds = 600.0  #: §6.4: ten minutes
    payment: str = "randomised"  #: or `floor`: see `policy.themis.payment`
    speedup: str = "table"  #: or `paper`: Eq. 1's linear speed-up
    weigh: str = "apps"  #: N_avg counts apps (the paper); or `tenants`: tenant weight / its active apps
    reference: str | None = None  #: GPU type of T_id; default: the slowest that the app can run on
    deadline: Seconds = 30.0  #: an external bid older than this is replaced by the cached table
    rows: int = ROWS  #: bound on the rows of one bid

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Options:
        """The options in `given`. Raises BadInput for an unknown name or an impossible value."""
        names = [f.name for f in fields(cls)]
        for name in given:
            if name not in names:
                raise BadInput(
                    f"no option {name!r}", field="policy.options", value=name, remedy=f"one of {', '.join(names)}"
                )
        out = cls(**given)
        _number(given, "fairness_knob", 0.0, 1.0)
        _number(given, "lease", 0.0, None, above=True)
        _number(given, "deadline", 0.0, None)
        _number(given, "rows", 1, None, whole=True)
        for name, values in (
            ("payment", ("randomised", "floor")),
            ("speedup", ("table", "paper")),
            ("weigh", ("apps", "tenants")),
        ):
            if getattr(out, name) not in values:
                raise _bad(name, getattr(out, name), "is not known", f"one of {', '.join(values)}")
        if out.reference is not None and not isinstance(out.reference, str):
            raise _bad("reference", out.reference, "is not a GPU type", "the name of a GPU type")
        return out


def _number(
    given: Mapping[str, Any],
    name: str,
    low: float,
    high: float | None,
    *,
    above: bool = False,
    whole: bool = False,
) -> None:
    if name not in given:
        return
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise _bad(name, value, "is not a whole number" if whole else "is not a number", f"{low:g} or more")
    if not (value > low if above else value >= low) or (high is not None and value > high):
        span = f"{'above' if above else 'at least'} {low:g}" + (f" and at most {high:g}" if high is not None else "")
        raise _bad(name, value, "is out of range", span)


def _bad(name: str, value: object, message: str, remedy: str) -> BadInput:
    return BadInput(message, field=f"policy.options.{name}", value=value, remedy=remedy)
