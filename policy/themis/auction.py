"""The partial-allocation auction (Themis §3.3.1, Pseudocode 1 lines 5-12): who wins which row, and what c_i is.

Winner determination maximises the product of 1/rho, as the sum of logarithms:

    max   sum_i sum_r  log(null_i / rho_ir) x_ir      x binary
    s.t.  sum_r x_ir <= 1                             every app wins at most one row (none: null_i)
          chunks of the rows chosen = chunks placed   by domain and size, on the classes of the domain
          chunks placed fit the nodes of each class   volume, and for every size the bins it can still use
          GPUs of a tenant's apps <= its cap

The class rows are necessary, and for the usual node sizes sufficient; a choice that does not go onto named nodes
after all (`policy.themis.realise`) is cut off and the program solved again, so the optimum is one that can be had.
Of several optima, the one in which bidders gain most who come first in the tie order: always among bidders with equal
tables; among others in programs of up to `SETTLED` rows, beyond which the solver's (repeatable) choice stands.
Bidders that share no class and no tenant's cap are separate programs.

c_i = (product over j != i of 1/rho_j with i present) / (the same with i absent). It is at most 1: Pseudocode 1,
line 8, prints the fraction upside down. A solve without i is skipped where it cannot change anything: i won nothing,
or everybody else has its best row already. The others start from the live model with i's rows fixed to zero.

The factor D of the cap (see `policy.themis.valuation`) is set here, in logarithms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, log

from policy.model import EMPTY, Gpus, Seconds, Termination
from policy.solver import DEFAULT_TIME_LIMIT_S, Backend, Program, Variable
from policy.solver import Row as SolverRow
from policy.themis.offer import NodeClass, Offer
from policy.themis.realise import Order, Quotas, Wins, goes, realise
from policy.themis.rows import Bid, Demand, Need, Row

#: Programs of up to this many rows settle ties between unlike bids in the tie order, by one more solve.
SETTLED = 400

Value = Callable[[Variable], float]
Parts = Sequence[tuple[dict[Variable, float], Demand, Need]]


@dataclass(frozen=True, slots=True)
class Cap:
    """A tenant's limit: these apps may take at most `room` of the offered GPUs together."""

    apps: frozenset[str]
    room: Gpus


@dataclass(frozen=True, slots=True)
class Outcome:
    rows: Mapping[str, Row]  #: what each winner won
    wins: Wins  #: the same on named nodes
    kept_fraction: Mapping[str, float]  #: c_i of the winners
    log_null: Mapping[str, float]  #: log of every bidder's rho without a win, D included
    objective: float  #: sum over the bidders of log(null_i / rho_i)
    termination: Termination
    gap: float | None
    seconds: Seconds
    solves: int
    notes: tuple[str, ...] = ()


def auction(
    bids: Sequence[Bid],
    classes: Sequence[NodeClass],
    offered: Offer,
    caps: Sequence[Cap] = (),
    *,
    seed: int = 0,
    time_limit_s: Seconds = DEFAULT_TIME_LIMIT_S,
    backend: Backend = Backend.HIGHS,
) -> Outcome:
    """Run one auction. Bids in the tie order; equal bids are served in it."""
    boost = sum(log(b.null_rho / b.rows[0].rho) for b in bids if b.rows and not b.starving)
    log_null = {b.app: log(b.null_rho) + (boost if b.starving else 0.0) for b in bids}
    done = [
        _Market(part, classes, offered, caps, log_null, seed, time_limit_s * len(part) / len(bids), backend).run()
        for part in _apart([b for b in bids if b.rows], caps)
    ]
    rows = {app: row for o in done for app, row in o.rows.items()}
    gaps = [o.gap for o in done if o.gap is not None]
    return Outcome(
        rows=rows,
        wins={a: n for o in done for a, n in o.wins.items()},
        kept_fraction={a: c for o in done for a, c in o.kept_fraction.items()},
        log_null=log_null,
        objective=sum(o.objective for o in done),
        termination=next(
            (o.termination for o in done if o.termination is not Termination.OPTIMAL), Termination.OPTIMAL
        ),
        gap=max(gaps, default=0.0),
        seconds=sum(o.seconds for o in done),
        solves=sum(o.solves for o in done),
        notes=tuple(n for o in done for n in o.notes),
    )


def _apart(bids: Sequence[Bid], caps: Sequence[Cap]) -> list[list[Bid]]:
    """Bidders that can never stand in each other's way, apart."""
    parts: list[tuple[set[object], list[Bid]]] = []
    for bid in bids:
        mine: set[object] = {i for row in bid.rows for d in row.demands for i in d.domain}
        mine |= {("cap", n) for n, cap in enumerate(caps) if bid.app in cap.apps}
        touching = [p for p in parts if p[0] & mine]
        parts = [p for p in parts if not p[0] & mine]
        merged = sorted([*(b for p in touching for b in p[1]), bid], key=bids.index)
        parts.append((mine.union(*(p[0] for p in touching)), merged))
    return sorted((p[1] for p in parts), key=lambda part: bids.index(part[0]))


@dataclass(slots=True)
class _Market:
    """One independent part of the auction."""

    bids: Sequence[Bid]
    classes: Sequence[NodeClass]
    offered: Offer
    caps: Sequence[Cap]
    log_null: Mapping[str, float]
    seed: int
    time_limit_s: Seconds
    backend: Backend
    program: Program = field(default_factory=Program)
    x: dict[tuple[str, int], Variable] = field(default_factory=dict)
    spread: dict[tuple[tuple[int, ...], Gpus, Need], dict[int, Variable]] = field(default_factory=dict)
    cuts: list[SolverRow] = field(default_factory=list)
    least: float | None = None  #: settling a tie: the optimum, which must stay
    spent: Seconds = 0.0
    solves: int = 0
    notes: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        self._build()
        best = {b.app: self.gain(b, b.rows[0]) for b in self.bids}
        chosen, result_gap, termination, quotas = self._solve(None)
        contested = self._value(chosen) < sum(best.values()) - 1e-12
        if contested and termination is Termination.OPTIMAL and len(self.x) <= SETTLED:
            chosen, quotas = self._settled(chosen, quotas)
        chosen = self._tie_order(chosen)
        value = {b.app: self.gain(b, chosen[b.app]) if b.app in chosen else 0.0 for b in self.bids}
        fraction = {}
        for app in chosen:
            others = sum(v for a, v in value.items() if a != app)
            if others >= sum(v for a, v in best.items() if a != app) - 1e-12:
                fraction[app] = 1.0
                continue
            rows, _, how, _ = self._solve(app, chosen)
            without = sum(self.gain(b, rows[b.app]) for b in self.bids if b.app in rows)
            if how is not Termination.OPTIMAL:
                self.notes.append(f"c of {app} is from an incumbent ({how}): at most what it would be")
            fraction[app] = min(exp(others - max(without, others)), 1.0)
        wins = realise(self._orders(chosen), self.classes, self.offered, quotas) or {}
        return Outcome(
            chosen,
            wins,
            fraction,
            {},
            sum(value.values()),
            termination,
            result_gap,
            self.spent,
            self.solves,
            tuple(self.notes),
        )

    def gain(self, bid: Bid, row: Row) -> float:
        return self.log_null[bid.app] - log(row.rho)

    # --- the program ---

    def _build(self) -> None:
        program = self.program
        objective: dict[Variable, float] = {}
        asked: dict[tuple[object, ...], dict[Variable, float]] = {}
        demand_of: dict[tuple[object, ...], tuple[Demand, Need]] = {}
        for bid in self.bids:
            mine = {}
            for r, row in enumerate(bid.rows):
                v = program.binary()
                self.x[bid.app, r] = v
                mine[v] = 1.0
                objective[v] = self.gain(bid, row)
                for d in row.demands:
                    key: tuple[object, ...] = (d.domain, d.chunk, bid.need)
                    if d.apart:
                        key = (*key, bid.app, r)
                    demand_of[key] = (d, bid.need)
                    into = asked.setdefault(key, {})
                    into[v] = into.get(v, 0.0) + d.times
            program.at_most(mine, 1)
        placed: dict[int, list[tuple[dict[Variable, float], Demand, Need]]] = {}
        for key, row_vars in asked.items():
            demand, need = demand_of[key]
            if len(demand.domain) == 1:
                placed.setdefault(demand.domain[0], []).append((row_vars, demand, need))
                continue
            balance = {v: -n for v, n in row_vars.items()}
            for i in demand.domain:
                c = self.classes[i]
                top = len(c.nodes) * (1 if demand.apart else c.free // demand.chunk)
                z = program.variable(0, top, integer=demand.chunk > 1)
                balance[z] = 1.0
                if not demand.apart:
                    self.spread.setdefault((demand.domain, demand.chunk, need), {})[i] = z
                placed.setdefault(i, []).append(({z: 1.0}, demand, need))
            program.equal(balance, 0)
        for i, parts in sorted(placed.items()):
            self._capacity(self.classes[i], parts)
        for cap in self.caps:
            taken = {
                self.x[b.app, r]: float(row.gpus)
                for b in self.bids
                if b.app in cap.apps
                for r, row in enumerate(b.rows)
            }
            if taken:
                program.at_most(taken, cap.room)
        if self.least is None:
            program.maximise(objective)
            return
        program.at_least(objective, self.least)
        rank = {b.app: i for i, b in enumerate(self.bids)}
        early = {self.x[app, r]: 1.0 + (len(rank) - rank[app]) / len(rank) for app, r in self.x}
        program.maximise({v: gain * early[v] for v, gain in objective.items()})

    def _capacity(self, c: NodeClass, parts: Parts) -> None:
        """Necessary conditions for the chunks to fit `len(c.nodes)` nodes of `c.free` GPUs."""
        nodes = len(c.nodes)
        self._weigh(parts, lambda d, n: d.chunk, nodes * c.free)
        for size in range(2, c.free // 2 + 1):
            self._weigh(parts, partial(_displaced, free=c.free, size=size), nodes * (c.free // size))
        if c.free > 1:  # what is above half a node needs a node of its own
            self._weigh(parts, lambda d, n: (d.chunk * 2 > c.free) + 0.5 * (d.chunk * 2 == c.free), nodes)
        if c.cpus is not None:
            self._weigh(parts, lambda d, n: n.cpus * d.chunk, nodes * c.cpus)
        if c.memory is not None:
            self._weigh(parts, lambda d, n: n.memory * d.chunk / 2**30, nodes * c.memory / 2**30)

    def _weigh(self, parts: Parts, weight: Callable[[Demand, Need], float], up: float) -> None:
        row: dict[Variable, float] = {}
        for variables, demand, need in parts:
            w = float(weight(demand, need))
            if w:
                for v, n in variables.items():
                    row[v] = row.get(v, 0.0) + w * n
        if row:
            self.program.at_most(row, up)

    # --- solving ---

    def _solve(
        self, without: str | None, known: Mapping[str, Row] = EMPTY
    ) -> tuple[dict[str, Row], float | None, Termination, Quotas]:
        """Rows by app, gap, termination and quotas of the optimum without one bidder (None: with all).

        `known`: an answer to begin from.
        """
        fixed = [v for (app, _), v in self.x.items() if app == without]
        for v in fixed:
            self.program.set_bounds(v, 0, 0)
        left = max(self.time_limit_s - self.spent, 0.05)
        result = self.program.solve(
            backend=self.backend,
            time_limit_s=left / 2 if without is None else left,
            seed=self.seed,
            separate=self._separate,
            first=self.cuts,
            start={
                self.x[b.app, r]: float(b.app != without and known.get(b.app) == row)
                for b in self.bids
                for r, row in enumerate(b.rows)
            }
            if known
            else None,
            heuristics=False,
        )
        for v in fixed:
            self.program.set_bounds(v, 0, 1)
        self.spent += result.seconds
        self.solves += 1
        chosen = self._chosen(result.__getitem__) if result.has_solution else {}
        if not result.optimal:
            chosen = self._fitting(chosen)
        quotas = self._quotas(result.__getitem__) if result.optimal else EMPTY
        return chosen, result.gap, result.termination, quotas

    def _chosen(self, value: Value) -> dict[str, Row]:
        return {bid.app: row for bid in self.bids for r, row in enumerate(bid.rows) if value(self.x[bid.app, r]) > 0.5}

    def _quotas(self, value: Value) -> Quotas:
        return {key: {i: round(value(z)) for i, z in by_class.items()} for key, by_class in self.spread.items()}

    def _separate(self, value: Value) -> Iterable[SolverRow]:
        """Nothing, where the choice goes onto named nodes; else the row that forbids it."""
        chosen = self._chosen(value)
        if self._goes(chosen, self._quotas(value)):
            return []
        for app in list(chosen):  # as few rows as cause it: a stronger cut
            fewer = {a: r for a, r in chosen.items() if a != app}
            if not self._goes(fewer):
                chosen = fewer
        index = {b.app: b for b in self.bids}
        cut = {self.x[a, index[a].rows.index(r)]: 1.0 for a, r in chosen.items()}
        self.cuts.append(SolverRow(cut, up=len(cut) - 1))
        return list(self.cuts)  # all: the solver drops slack ones, and they must not come back one by one for ever

    def _orders(self, chosen: Mapping[str, Row]) -> list[Order]:
        return [Order(b.app, chosen[b.app].demands, b.need) for b in self.bids if b.app in chosen]

    def _goes(self, chosen: Mapping[str, Row], quotas: Quotas = EMPTY) -> bool:
        return goes(self._orders(chosen), self.classes, self.offered, quotas)

    def _fitting(self, chosen: dict[str, Row]) -> dict[str, Row]:
        """An incumbent, less the rows (least gain first) that keep it off the nodes."""
        gain = {b.app: self.gain(b, chosen[b.app]) for b in self.bids if b.app in chosen}
        while chosen and not self._goes(chosen):
            chosen = {a: r for a, r in chosen.items() if a != min(chosen, key=lambda a: (gain[a], a))}
        return chosen

    def _settled(self, chosen: dict[str, Row], quotas: Quotas) -> tuple[dict[str, Row], Quotas]:
        """Among optima, the one in which those first in the tie order gain most."""
        best = self._value(chosen)
        other = _Market(
            self.bids,
            self.classes,
            self.offered,
            self.caps,
            self.log_null,
            self.seed,
            self.time_limit_s / 4,
            self.backend,
            least=best - 1e-7,
        )
        other._build()
        found, _, termination, spread = other._solve(None)
        self.spent += other.spent
        self.solves += 1
        if termination is Termination.OPTIMAL and self._value(found) >= best - 1e-9 * max(abs(best), 1.0):
            return found, spread
        return chosen, quotas

    def _value(self, chosen: Mapping[str, Row]) -> float:
        return sum(self.gain(b, chosen[b.app]) for b in self.bids if b.app in chosen)

    def _tie_order(self, chosen: Mapping[str, Row]) -> dict[str, Row]:
        """Among bidders whose tables are equal, the better rows go to those first in the tie order."""
        same: dict[tuple[object, ...], list[Bid]] = {}
        for bid in self.bids:
            caps = tuple(n for n, cap in enumerate(self.caps) if bid.app in cap.apps)
            same.setdefault((bid.rows, self.log_null[bid.app], bid.need, caps), []).append(bid)
        out: dict[str, Row] = {}
        for twins in same.values():
            won = sorted(
                (chosen[b.app] for b in twins if b.app in chosen), key=lambda row: (-self.gain(twins[0], row), row)
            )
            out.update(zip((b.app for b in twins), won, strict=False))
        return {b.app: out[b.app] for b in self.bids if b.app in out}


def _displaced(demand: Demand, need: Need, *, free: Gpus, size: Gpus) -> float:
    """How many chunks of `size` one chunk displaces on a node of `free` GPUs: of the most it holds, at least this.

    A dual feasible function for bin packing (Carlier, Clautiaux and Moukrim 2007).
    """
    chunk = demand.chunk
    if chunk * 2 > free:
        return free // size - (free - chunk) // size
    return free // size / 2 if chunk * 2 == free else chunk // size
