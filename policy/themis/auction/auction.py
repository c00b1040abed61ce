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
its rows
go onto named nodes; all solves share two tables. Where they do not go, the program is built from the rows that an
answer better than a known one can contain. Only the winners of small programs are always the program's own, because
its ties are settled.

The factor D of the cap (see `policy.themis.auction.valuation`) is set here, in logarithms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log

from policy.model import EMPTY, Seconds, Termination
from policy.parts.solver import DEFAULT_TIME_LIMIT_S, Backend, Constraint, Program, Result, Variable
from policy.themis.auction.bidders import Cap, apart, contenders, kind
from policy.themis.auction.capacity import Parts, add_capacity
from policy.themis.auction.knapsack import Choice, Knapsack, settled
from policy.themis.auction.realise import Order, Undecided, Wins, goes_simply, realise
from policy.themis.auction.rows import Bid, Demand, PerGpu, Row, met_by
from policy.themis.offer import NodeClass, Offer

#: Programs of up to this many rows settle ties between unlike bids in the tie order, by one more solve.
SETTLED = 400
#: With more bidders than this an answer whose sum of log(1/rho) is within `CLOSE` of a bound is taken, and said to be.
MANY, CLOSE = 100, 0.05
#: After so many choices that do not go onto nodes in the simple order the program is asked to place them at once.
MISSES = 20
#: How far below the knapsack's an optimum is looked for first, in log(1/rho).
BELOW = 0.006

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
    below: float = field(default_factory=lambda: BELOW)
    misses: int = 0  #: choices that the simple order did not place
    began_s: Seconds = field(default_factory=time.perf_counter)
    spent: Seconds = 0.0
    solves: int = 0
    late: bool = False
    raises: list[tuple[float, Bid, Row]] | None = None  #: other rows of the winners' and others' tables, best first
    notes: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        if Knapsack.fits(self.bids, self.classes):
            started = time.perf_counter()
            self.knapsack = Knapsack(self.bids, self.gain, self.classes)
            self.spent += time.perf_counter() - started
        best = {b.app: self.gain(b, b.rows[0]) for b in self.bids}
        small = sum(len(b.rows) for b in self.bids) <= SETTLED
        chosen, result_gap, termination = self._solve(None) if small else self._best(None, {})
        contested = self._value(chosen) < sum(best.values()) - 1e-12
        if contested and termination is Termination.OPTIMAL and small:
            chosen = self._settled(chosen)
        chosen = self._tie_order(chosen)
        if not self._goes(chosen):  # a limit ended the program that would have placed the rows now exchanged
            chosen, result_gap, termination = self._fitting(chosen), None, Termination.FEASIBLE
        value = {b.app: self.gain(b, chosen[b.app]) if b.app in chosen else 0.0 for b in self.bids}
        fraction, weight = {}, {b.app: b.weight for b in self.bids}
        unproven: dict[str, float] = {}  #: by how much c may be too large, relative
        for app in chosen:
            others = sum(v for a, v in value.items() if a != app)
            if others >= sum(v for a, v in best.items() if a != app) - 1e-12:
                fraction[app] = 1.0
                continue
            rows, gap, how = self._best(app, chosen)
            without = self._value(rows)
            if how is not Termination.OPTIMAL:
                unproven[app] = exp((gap or 0.0) * without / weight[app]) - 1.0
            fraction[app] = min(exp((others - max(without, others)) / weight[app]), 1.0)
        if unproven:
            first, worst = ", ".join(list(unproven)[:3]), max(unproven.values())
            much = f"too large by at most {worst:.2g} of it"
            self.notes.append(f"c of {len(unproven)} winners ({first} first) is from an incumbent: {much}")
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

        The knapsack's, where its rows go onto nodes. Else the program's, over the rows that an answer worth at most
        `below` less than the knapsack's can contain; an optimum of that which is worth as much is one of all rows.
        """
        best = sum(self.gain(b, b.rows[0]) for b in self.bids)
        if without is not None and not self._left():
            self.late = True
            return self._known(NOTHING, without, known, best if self.knapsack is None else self.knapsack.most(without))
        if self.knapsack is None:
            return self._known(self._solve(without, known), without, known, best)
        answer, choice, short = self._simply(self.knapsack, without)
        if answer is not None:
            return answer
        if not choice:  # the tables are windows, and hold none
            return self._known(self._solve(without, known), without, known, best)
        bound = short + sum(option.gain for option in choice.values())
        if len(self.bids) > MANY:
            answer = self._known(NOTHING, without, known, bound)
            if bound - self._value(answer[0]) > CLOSE:
                bids = [replace(b, rows=choice[b.app].rows) for b in self.bids if b.app in choice]
                answer = self._known(self._core(bids), without, known, bound)
            worth = self._value(answer[0])
            if bound - worth <= CLOSE:
                return answer[0], *_proven(worth, bound - worth)
        if short > 0:
            return self._known(self._solve(without, known), without, known, bound)
        return self._narrowed(self.knapsack, without, known, bound)

    def _simply(self, knapsack: Knapsack, without: str | None) -> tuple[Answer | None, Choice, float]:
        """The knapsack's best choice, as an answer where its rows go in the simple order, and by how much another may
        beat it."""
        started, short = time.perf_counter(), 0.0
        first: Choice = EMPTY
        for choice, short in knapsack.best(without):
            first = first or choice
            if self.misses >= MISSES:
                break
            rows = settled(choice, self.classes)
            close = short <= 0 or len(self.bids) > MANY
            if close and self._within_caps(rows) and goes_simply(self._orders(rows), self.classes, self.offered):
                self.spent += time.perf_counter() - started
                self.solves += 1
                return (rows, *_proven(self._value(rows), short)), choice, short
            self.misses += 1
        return None, first, short

    def _narrowed(self, knapsack: Knapsack, without: str | None, known: Mapping[str, Row], bound: float) -> Answer:
        """The program's optimum over the rows that a choice worth little less than `bound` can contain."""
        below = self.below
        found: Answer | None = None
        while True:
            bids = knapsack.within(without, bound - below - 1e-9)
            if 2 * sum(len(b.rows) for b in bids) > sum(len(b.rows) for b in self.bids):
                return self._known(self._solve(without, known), without, known, bound)
            answer = self._core(bids)
            gap = bound - self._value(answer[0])
            if found is None or self._value(answer[0]) >= self._value(found[0]):
                found = answer
            if answer[2] is not Termination.OPTIMAL:
                return self._known((*found[:2], answer[2]), without, known, bound)
            if gap <= below:
                self.below = max(BELOW, 1.05 * gap)  # the next solve is much alike
                return answer
            below = min(gap, 4 * below)

    def _known(self, answer: Answer, without: str | None, known: Mapping[str, Row], bound: float) -> Answer:
        """Of a program that a limit ended: its best answer or the known one. None is worth more than `bound`."""
        if answer[2] is Termination.OPTIMAL:
            return answer
        rows = answer[0]
        others = self._instead(without, known)
        if self._value(others) > self._value(rows):
            rows = others
        worth = self._value(rows)
        return rows, *_proven(worth, bound - worth)

    def _instead(self, without: str | None, known: Mapping[str, Row]) -> dict[str, Row]:
        """The known answer with another bidder in the place of one: the one that gains most by it."""
        others = {a: r for a, r in known.items() if a != without}
        if without is None or without not in known:
            return others
        won, need = known[without], {b.app: b.need for b in self.bids}[without]
        if self.raises is None:
            self.raises = self._raises(known)
        for _, bid, row in self.raises:
            if bid.app != without and bid.need == need and met_by(row, won):
                better = {**others, bid.app: row}
                return better if self._within_caps(better) else others
        return others

    def _raises(self, known: Mapping[str, Row]) -> list[tuple[float, Bid, Row]]:
        """Rows that are worth more to their bidders than what they have in the known answer, the largest gain first."""
        found = []
        for bid in self.bids:
            now = self.gain(bid, known[bid.app]) if bid.app in known else 0.0
            found += [(gain, bid, row) for row in bid.rows if (gain := self.gain(bid, row) - now) > 0]
        return sorted(found, key=lambda each: -each[0])

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
