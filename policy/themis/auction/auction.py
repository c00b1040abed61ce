"""The partial-allocation auction (Themis §3.3.1, Pseudocode 1 lines 5-12): who wins which row, and what c_i is.

Winner determination maximises the product of 1/rho, as the sum of logarithms:

    max   sum_i sum_r  log(null_i / rho_ir) x_ir      x binary
    s.t.  sum_r x_ir <= 1                             every app wins at most one row (none: null_i)
          chunks of the rows chosen = chunks placed   by domain and size, on the classes of the domain
          chunks placed fit the nodes of each class   volume, and for every size the bins it can still use
          GPUs of a tenant's apps <= its cap

The class rows are necessary, and for the usual node sizes sufficient. A choice that does not go onto named nodes after
all (`policy.themis.auction.realise`) has the program made with exact ones (`policy.themis.auction.capacity`) where they
are known, and is cut off where they are not: so the optimum is one that can be had.
Of several optima, the one in which bidders gain most who come first in the tie order: always among bidders with equal
tables; among others in programs of up to `SETTLED` rows, beyond which the solver's (repeatable) choice stands.
Bidders that share no class and no tenant's cap are separate programs.

Where apps weigh differently (`weigh=tenants`), a bidder's logarithms count w_i times, and c_i is the w_i-th root: Nash
welfare with weights, as in Cole, Gkatzelis and Goel (EC 2013). A weight in T_id alone would cancel out of the product.

c_i = (product over j != i of 1/rho_j with i present) / (the same with i absent). It is at most 1: Pseudocode 1,
line 8, prints the fraction upside down. A solve without i is skipped where it cannot change anything: i won nothing,
or everybody else has its best row already.

Every solve is first tried as a knapsack (`policy.themis.auction.knapsack`), whose optimum is the program's whenever
its rows go onto named nodes; all solves share two tables. Where they do not go, and where its two counts do not tell
the GPU types of many bidders apart, the prices of a linear program (`policy.themis.auction.prices`) say which rows an
optimum can contain, and an integer program is made from those. Of more than `MANY` bidders a payment that the knapsack
does not answer is by those prices, not solved for. Only the winners of small programs are always the program's own,
because its ties are settled.

The factor D of the cap (see `policy.themis.auction.valuation`) is set here, in logarithms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, expm1, log

from policy.model import EMPTY, Seconds, Termination
from policy.parts.solver import DEFAULT_TIME_LIMIT_S, Backend, Constraint, Program, Result, Variable
from policy.themis.auction.bidders import Cap, apart, contenders, kind
from policy.themis.auction.capacity import Parts, add_capacity
from policy.themis.auction.knapsack import Knapsack, settled
from policy.themis.auction.prices import Choice, Prices
from policy.themis.auction.realise import Order, Undecided, Wins, goes_simply, realise
from policy.themis.auction.rows import Bid, Demand, PerGpu, Row
from policy.themis.offer import NodeClass, Offer

#: Programs of up to this many rows settle ties between unlike bids in the tie order, by one more solve.
SETTLED = 400
#: With more bidders than this an answer whose sum of log(1/rho) is within `CLOSE` of a bound is taken, payments that
#: the knapsack does not answer are by prices, and it is said how far they may be off.
MANY, CLOSE = 100, 0.05
#: Rows that lose no more than this at the prices are looked at first, in log(1/rho); so many rows at most.
NEAR, COLUMNS = 0.05, 3000
#: By so much more, where all that a better answer can contain are looked at: what is a solver's noise is in them.
NOISE = 1e-6
#: Of a payment that may be so many times too large, or too small, nothing is said to be proven.
NOTHING_SAID = 10.0
#: After so many choices that do not go onto nodes in the simple order the program is asked to place them at once.
MISSES = 20

Value = Callable[[Variable], float]
#: Rows by app, gap, how the solve ended.
Answer = tuple[dict[str, Row], float | None, Termination]
#: No answer yet.
NOTHING: Answer = ({}, None, Termination.FEASIBLE)


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
    clock: bool = False  #: the wall clock ended one of the programs


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
    boost = sum(b.weight * log(b.null_rho / b.rows[0].rho) for b in bids if b.rows and not b.starving)
    log_null = {b.app: log(b.null_rho) + (boost / b.weight if b.starving else 0.0) for b in bids}
    done = [
        _Market(part, classes, offered, caps, log_null, seed, time_limit_s * len(part) / len(bids), backend).run()
        for part in apart(contenders([b for b in bids if b.rows], classes, log_null, caps), caps)
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
        clock=any(o.clock for o in done),
    )


def _relative(logarithm: float) -> float:
    return expm1(min(logarithm, 100.0))


def _proven(worth: float, short: float) -> tuple[float, Termination]:
    """The relative gap of an answer that another may beat by `short`, and how it ended."""
    if short <= 1e-9:
        return 0.0, Termination.OPTIMAL
    return short / max(abs(worth), 1e-9), Termination.FEASIBLE


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
    cuts: list[Constraint] = field(default_factory=list)
    exact: bool = False  #: the program's rows of the classes: a choice showed that the simple ones do not do
    undecided: bool = False  #: of a choice that was cut off it is not proven that it does not go
    least: float | None = None  #: settling a tie: the optimum, which must stay
    knapsack: Knapsack | None = None
    made: Prices | None = None  #: once they were asked for
    near: float = field(default_factory=lambda: NEAR)
    misses: int = 0  #: choices that the simple order did not place
    began_s: Seconds = field(default_factory=time.perf_counter)
    spent: Seconds = 0.0
    solves: int = 0
    late: bool = False
    notes: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        if (len(self.bids) <= MANY or self._two_types()) and Knapsack.fits(self.bids, self.classes):
            started = time.perf_counter()
            self.knapsack = Knapsack(self.bids, self.gain, self.classes)
            self.spent += time.perf_counter() - started
        best = {b.app: self.gain(b, b.rows[0]) for b in self.bids}
        small = sum(len(b.rows) for b in self.bids) <= SETTLED
        chosen, result_gap, termination = self._best(None, {})
        contested = self._value(chosen) < sum(best.values()) - 1e-12
        if contested and termination is Termination.OPTIMAL and small:
            chosen = self._settled(chosen)
        chosen = self._tie_order(chosen)
        if not self._goes(chosen):  # a limit ended the program that would have placed the rows now exchanged
            chosen, result_gap, termination = self._fitting(chosen), None, Termination.FEASIBLE
        value = {b.app: self.gain(b, chosen[b.app]) if b.app in chosen else 0.0 for b in self.bids}
        fraction = self._fractions(chosen, value, best)
        wins = realise(self._orders(chosen), self.classes, self.offered) or {}
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
            self.late,
        )

    def _fractions(
        self,
        chosen: Mapping[str, Row],
        value: Mapping[str, float],
        best: Mapping[str, float],
    ) -> dict[str, float]:
        """c of every winner; of what is not proven a note says how far it may be off."""
        fraction, weight = {}, {b.app: b.weight for b in self.bids}
        off: dict[str, tuple[float, float]] = {}  #: by how much c may be too large, and too small, relative
        for app in chosen:
            others = sum(v for a, v in value.items() if a != app)
            if others >= sum(v for a, v in best.items() if a != app) - 1e-12:
                fraction[app] = 1.0
                continue
            least, without, most = self._without(app, chosen)
            without = max(without, others)
            if most > max(least, others):
                above, below = max(most - without, 0.0), without - max(least, others)
                off[app] = _relative(above / weight[app]), _relative(below / weight[app])
            fraction[app] = min(exp((others - without) / weight[app]), 1.0)
        if off:
            large = max(above for above, _ in off.values())
            small = max(below for _, below in off.values())
            first = ", ".join(list(off)[:3])
            much = f"too large by at most {large:.2g} of it, too small by at most {small:.2g}"
            if max(large, small) > NOTHING_SAID:
                much = "a limit came before anything was proven of them"
            self.notes.append(f"c of {len(off)} winners ({first} first) is not exact: {much}")
        return fraction

    def _without(self, app: str, chosen: Mapping[str, Row]) -> tuple[float, float, float]:
        """What the others' optimum without one bidder is worth: at least, as c is worked out from it, and at most.

        Of many bidders it is not solved for, nor where a limit came first: GPUs that one leaves are worth their prices
        to the others, as nearly as all that is won is near the bound.
        """
        many = len(self.bids) > MANY
        answer: Answer | None = None
        if not many:
            answer = self._best(app, chosen)
        elif self.knapsack is not None and self._left():
            answer = self._simply(self.knapsack, app)
        others = {a: r for a, r in chosen.items() if a != app}
        rows, gap, how = answer or (others, None, Termination.FEASIBLE)
        least = self._value(rows)
        if how is Termination.OPTIMAL or (many and gap is not None):
            return least, least, least * (1 + (gap or 0.0))
        most = max(self.prices.most(app), least)
        return least, min(max(self._value(chosen) - self.prices.surplus(app), least), most), most

    def _two_types(self) -> bool:
        """Whether the knapsack's two counts of GPUs tell all types apart: else its bound is of no use to many."""
        return len({c.gpu_type for c in self.classes}) <= 2

    def _left(self) -> Seconds:
        """Of the time limit; what is done between the programs counts too."""
        return max(self.time_limit_s - (time.perf_counter() - self.began_s), 0.0)

    def gain(self, bid: Bid, row: Row) -> float:
        return bid.weight * (self.log_null[bid.app] - log(row.rho))

    # --- the program ---

    def _build(self) -> None:
        program = self.program
        objective: dict[Variable, float] = {}
        asked: dict[tuple[object, ...], dict[Variable, float]] = {}
        demand_of: dict[tuple[object, ...], tuple[Demand, PerGpu]] = {}
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
        placed: dict[int, Parts] = {}
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
                placed.setdefault(i, []).append(({z: 1.0}, demand, need))
            program.equal(balance, 0)
        for i, parts in sorted(placed.items()):
            add_capacity(program, self.classes[i], parts, exact=self.exact)
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

    # --- solving ---

    def _best(self, without: str | None, known: Mapping[str, Row]) -> Answer:
        """The optimum without one bidder (None: with all). `known`: an answer to begin from.

        The knapsack's, where its rows go onto nodes; else that by prices, where it does; else the program's, over the
        rows that an optimum can contain.
        """
        if without is not None and not self._left():
            self.late = True
            return self._known(NOTHING, without, known, self.prices.most(without))
        simple = None if self.knapsack is None else self._simply(self.knapsack, without)
        if simple is not None:
            return simple
        found = self._by_prices(without)
        if found[2] is Termination.OPTIMAL or (len(self.bids) > MANY and found[0]):
            return found
        other = self._narrowed(without, known)
        better = other[2] is Termination.OPTIMAL or self._value(other[0]) > self._value(found[0])
        return other if better else found

    @property
    def prices(self) -> Prices:
        if self.made is None:
            started = time.perf_counter()
            self.made = Prices(
                self.bids,
                self.gain,
                self.classes,
                self.caps,
                self.seed,
            )
            self.spent += time.perf_counter() - started
        return self.made

    def _by_prices(self, without: str | None) -> Answer:
        """The best choice of rows that lose little at the prices, and by how much any may beat it: optimal where they
        are all that a better one can contain."""
        prices, found = self.prices, NOTHING
        most = prices.most(without)
        while prices.count(without, self.near) <= COLUMNS or (without is None and not found[0]):
            choice = self._chosen_of(without)
            goes = choice is not None and self._goes(choice.rows)
            if choice is not None and goes and not choice.clock:
                rows, short = dict(choice.rows), choice.short
            elif without is None:
                rows = self._in_turn(choice)
                if len(self.bids) > MANY and not goes:
                    rows = max(self._core(prices.within(None, self.near))[0], rows, key=self._value)
                short = max(most - self._value(rows), 0.0)
            else:
                break
            worth = self._value(rows)
            if not found[0] or worth >= self._value(found[0]):
                found = rows, *_proven(worth, short)
            if short <= 0 or most - worth <= self.near or not self._left():
                break
            self.near = most - worth + NOISE
        return found

    def _in_turn(self, choice: Choice | None) -> dict[str, Row]:
        """What goes in the simple order of the rows chosen, the largest gains first, then of others' smallest rows."""
        wanted = EMPTY if choice is None else choice.rows
        first = [(b, wanted[b.app]) for b in self.bids if b.app in wanted]
        first.sort(key=lambda each: -self.gain(*each))
        out: dict[str, Row] = {}
        for bid, row in (*first, *((b, b.rows[-1]) for b in self.bids)):
            more = {**out, bid.app: row}
            fits = bid.app not in out and self._within_caps(more)
            if fits and goes_simply(self._orders(more), self.classes, self.offered):
                out = more
        return out

    def _chosen_of(self, without: str | None) -> Choice | None:
        """The best choice of the rows that lose no more than `near`."""
        started = time.perf_counter()
        choice = self.prices.best(without, self.near, max(self._left(), 0.05))
        self.spent += time.perf_counter() - started
        self.late |= choice is None or choice.clock
        self.solves += 1
        return choice

    def _simply(self, knapsack: Knapsack, without: str | None) -> Answer | None:
        """The knapsack's best choice, where none beats it (of many bidders: by much) and its rows go in the simple
        order."""
        started = time.perf_counter()
        for choice, short in knapsack.best(without):
            if self.misses >= MISSES:
                break
            rows = settled(choice, self.classes)
            close = short <= (CLOSE if len(self.bids) > MANY else 0.0)
            if close and self._within_caps(rows) and goes_simply(self._orders(rows), self.classes, self.offered):
                self.spent += time.perf_counter() - started
                self.solves += 1
                return rows, *_proven(self._value(rows), short)
            self.misses += 1
        return None

    def _narrowed(self, without: str | None, known: Mapping[str, Row]) -> Answer:
        """The program's optimum, from the rows that lose so little that it can contain them."""
        most, near = self.prices.most(without), self.near
        while True:
            bids = self.prices.within(without, near)
            if 2 * sum(len(b.rows) for b in bids) > sum(len(b.rows) for b in self.bids):
                return self._known(self._solve(without, known), without, known, most)
            answer = self._core(bids)
            short = most - self._value(answer[0])
            if answer[2] is not Termination.OPTIMAL:
                return self._known(answer, without, known, most)
            if short <= near:
                return answer
            near = short + NOISE

    def _known(self, answer: Answer, without: str | None, known: Mapping[str, Row], bound: float) -> Answer:
        """Of a program that a limit ended: its best answer or the known one. None is worth more than `bound`."""
        if answer[2] is Termination.OPTIMAL:
            return answer
        rows = answer[0]
        others = {a: r for a, r in known.items() if a != without}
        if self._value(others) > self._value(rows):
            rows = others
        worth = self._value(rows)
        return rows, *_proven(worth, bound - worth)

    def _core(self, bids: Sequence[Bid]) -> Answer:
        """The program's optimum over these rows."""
        left = max(self._left(), 0.05)
        core = _Market(
            bids,
            self.classes,
            self.offered,
            self.caps,
            self.log_null,
            self.seed,
            left,
            self.backend,
            exact=self.exact,
        )
        answer = core._solve(None)
        self.spent += core.spent
        self.late |= core.late
        self.exact |= core.exact
        self.solves += 1
        return answer

    def _within_caps(self, chosen: Mapping[str, Row]) -> bool:
        return all(sum(r.gpus for a, r in chosen.items() if a in cap.apps) <= cap.room for cap in self.caps)

    def _solve(self, without: str | None, known: Mapping[str, Row] = EMPTY) -> Answer:
        """The program's optimum without one bidder (None: with all). `known`: an answer to begin from."""
        if not self.x:
            self._build()
        exact = self.exact
        fixed = [v for (app, _), v in self.x.items() if app == without]
        for v in fixed:
            self.program.set_bounds(v, 0, 0)
        left = max(self._left(), 0.05)
        result = self.program.solve(
            backend=self.backend,
            time_limit_s=left / 2 if without is None else left,
            seed=self.seed,
            separate=self._separate,
            first=self.cuts,
            start=self._start(without, known),
            heuristics=False,
        )
        for v in fixed:
            self.program.set_bounds(v, 0, 1)
        self.spent += result.seconds
        self.late |= result.clock
        self.solves += 1
        if self.exact and not exact:
            self.program, self.x = Program(), {}
            return self._solve(without, known)
        chosen = self._chosen(result.__getitem__) if result.has_solution else {}
        if not result.optimal:
            chosen = self._fitting(chosen)
        if self.undecided:  # what was cut off may go after all
            return chosen, None, Termination.FEASIBLE
        return chosen, result.gap, result.termination

    def _start(self, without: str | None, known: Mapping[str, Row]) -> dict[Variable, float]:
        """A known answer, less the row of one bidder, in the program's variables."""
        rows = {b.app: b.rows for b in self.bids}
        return {v: float(app != without and known.get(app) == rows[app][r]) for (app, r), v in self.x.items()}

    def _chosen(self, value: Value) -> dict[str, Row]:
        return {bid.app: row for bid in self.bids for r, row in enumerate(bid.rows) if value(self.x[bid.app, r]) > 0.5}

    def _separate(self, result: Result) -> Iterable[Constraint]:
        """Nothing, where the choice goes onto named nodes, or is the first that does not; else the row that forbids
        it."""
        chosen = self._chosen(result.__getitem__)
        if self._goes(chosen):
            return []
        if not self.exact:
            self.exact = True
            return []
        for app in list(chosen):  # as few rows as cause it: a stronger cut
            fewer = {a: r for a, r in chosen.items() if a != app}
            if not self._goes(fewer):
                chosen = fewer
        index = {b.app: b for b in self.bids}
        cut = {self.x[a, index[a].rows.index(r)]: 1.0 for a, r in chosen.items()}
        self.cuts.append(Constraint(cut, up=len(cut) - 1))
        return list(self.cuts)  # all: the solver drops slack ones, and they must not come back one by one for ever

    def _orders(self, chosen: Mapping[str, Row]) -> list[Order]:
        return [Order(b.app, chosen[b.app].demands, b.need) for b in self.bids if b.app in chosen]

    def _goes(self, chosen: Mapping[str, Row]) -> bool:
        try:
            return realise(self._orders(chosen), self.classes, self.offered) is not None
        except Undecided:
            self.undecided = True
            return False

    def _fitting(self, chosen: dict[str, Row]) -> dict[str, Row]:
        """An incumbent, less the rows (least gain first) that keep it off the nodes."""
        gain = {b.app: self.gain(b, chosen[b.app]) for b in self.bids if b.app in chosen}
        for app in sorted(gain, key=lambda a: (gain[a], a)):
            if self._goes(chosen):
                break
            chosen = {a: r for a, r in chosen.items() if a != app}
        return chosen

    def _settled(self, chosen: dict[str, Row]) -> dict[str, Row]:
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
        found, _, termination = other._solve(None)
        self.spent += other.spent
        self.late |= other.late
        self.solves += 1
        if termination is Termination.OPTIMAL and self._value(found) >= best - 1e-9 * max(abs(best), 1.0):
            return found
        return chosen

    def _value(self, chosen: Mapping[str, Row]) -> float:
        return sum(self.gain(b, chosen[b.app]) for b in self.bids if b.app in chosen)

    def _tie_order(self, chosen: Mapping[str, Row]) -> dict[str, Row]:
        """Among bidders whose tables are equal, the better rows go to those first in the tie order."""
        same: dict[tuple[object, ...], list[Bid]] = {}
        for bid in self.bids:
            same.setdefault(kind(bid, self.log_null, self.caps), []).append(bid)
        out: dict[str, Row] = {}
        for twins in same.values():
            won = sorted(
                (chosen[b.app] for b in twins if b.app in chosen), key=lambda row: (-self.gain(twins[0], row), row)
            )
            out.update(zip((b.app for b in twins), won, strict=False))
        return {b.app: out[b.app] for b in self.bids if b.app in out}
