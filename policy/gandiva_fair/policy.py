"""Gandiva-fair as a policy (§3.5): tickets -> trades -> homes -> parts -> who runs this quantum.

A job is a gang of the size it requests (elastic ranges are not the paper's; a job whose request no GPU type can hold
takes the largest size of its range that one can). A job without an upper limit is its tenant's divisible demand (a
tenant-level instance): its shares are what the tenant is entitled to after trading. Gandiva-fair time-slices: jobs of a
node take turns, and the quantum should be at least twenty times a restart.

A home is on GPUs of one type. A gang that only GPUs of several types together could hold has no home and no turn; it
runs on what others leave idle, and its reason says so.

A turn lasts a quantum: asked again before it is over, who has it keeps it, and only what came free is given away.

State: when the quantum began and who runs in it, homes, passes and parts of jobs, the attained GPU time they were
charged up to, the trades in force, the lottery's queue. Passes are charged from attained GPU time of the next snapshot.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from policy.contract import Context
from policy.gandiva_fair.homes import (
    Home,
    Site,
    added,
    gpu_type,
    rates,
    rebalance,
    tickets_per_gpu,
    types_by_worth,
)
from policy.gandiva_fair.lottery import backfill_lottery, gang_lottery
from policy.gandiva_fair.parts import parts
from policy.gandiva_fair.stride import LEAST, Contender, advance, join, mean, split_stride
from policy.gandiva_fair.trading import Entitlement, Trade, trade, undone
from policy.model import EMPTY, Code, Gpus, GpuType, Job, JobName, NodeName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.fair_shares import fair_shares
from policy.places.filling import fill
from policy.places.placement import Placer
from policy.throughput import Throughput


def decide_gandiva_fair(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _Round(snapshot, options, context).decide("stride")


def decide_lottery(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _Round(snapshot, options, context).decide("lottery")


def decide_lottery_backfill(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _Round(snapshot, options, context).decide("backfill")


@dataclass(frozen=True, slots=True)
class _Rights:
    """What tenants are entitled to: before and after trading, and the trades."""

    fair: Mapping[str, float]
    have: Entitlement
    trades: list[Trade]
    undone: list[Trade]


class _Round:
    def __init__(self, snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> None:
        self.snapshot, self.options, self.context = snapshot, options, context
        self.speeds: Throughput = context.speeds
        self.placer = Placer(snapshot, self.speeds)
        self.state = snapshot.state
        self.site = Site.of(snapshot)
        self.equal = snapshot.cluster.limits.equal_gpus_per_node
        self.total: dict[GpuType, int] = {}
        for node, n in self.site.gpus.items():
            t = self.site.type_of[node]
            self.total[t] = self.total.get(t, 0) + n
        weights = {t.name: t.weight for t in snapshot.tenants}
        self._largest: dict[int, Gpus] = {}
        self._gangs: dict[object, Gpus] = {}
        self._rated: dict[tuple[int, Gpus], Sequence[tuple[GpuType, float]]] = {}  #: `rates` of those that are alike
        self.working = sorted((j for j in snapshot.jobs if j.work.left != 0), key=lambda j: j.order)
        self.size = {j.name: self._size(j) for j in self.working}
        self.jobs = [j for j in self.working if self.size[j.name]]
        self.tickets = {j.tenant: weights.get(j.tenant, 1.0) for j in self.jobs}
        self.requested: dict[str, int] = {}
        self.demand: dict[str, float] = {}
        for j in self.jobs:
            self.requested[j.tenant] = self.requested.get(j.tenant, 0) + self.size[j.name]
            wants = math.inf if j.gpus.max is None else float(self.size[j.name])
            self.demand[j.tenant] = self.demand.get(j.tenant, 0.0) + wants
        everything = float(sum(self.total.values()))
        # §3.2: tickets are re-adjusted for tenants that cannot use theirs, and balancing goes by these.
        self.fair = fair_shares(self.tickets, self.demand, everything)
        self.per_gpu = tickets_per_gpu(self.fair, self.requested)
        self.moves: dict[JobName, str] = {}
        began = self.state.get("at_s")
        self.amid = began is not None and snapshot.now_s < began + options["quantum"] - 1e-6
        self.began: float = began if self.amid and began is not None else snapshot.now_s

    def _size(self, job: Job) -> Gpus:
        """The gang that it takes turns with. Who holds nothing has that of those who are like it."""
        if job.allocation:
            return self._gang(job)
        cap = self.placer.cap(job.tenant)
        alike = (self.speeds.kind(job), job.gpus.requested, job.cpus_per_gpu, job.memory_per_gpu, cap)
        size = self._gangs.get(alike)
        if size is None:
            size = self._gangs[alike] = self._gang(job)
        return size

    def _gang(self, job: Job) -> Gpus:
        kind = self.speeds.kind(job)
        most = self._largest.get(kind)
        if most is None:
            in_types = (self.total[t] for t in self.speeds.types(job) if t in self.total)
            most = self._largest[kind] = max(in_types, default=0)
        size = job.gpus.at_most(min(self.placer.usual(job), most))
        while size and not self.placer.possible(job, size):
            size = job.gpus.at_most(size - 1)
        return size

    def decide(self, rule: str) -> Proposal:
        rights = self._rights()
        self._settle(rights)
        part = self._parts(rights)
        passes = self._passes(part)
        queue: list[JobName] = list(self.state.get("queue", ()))
        if self.amid:
            chosen = [n for n in self.state.get("running", ()) if n in self.site.homes]
        elif rule == "stride":
            chosen = self._stride(passes, part)
        else:
            chosen, queue = self._drawn(rule, queue)
        self._run(chosen, passes)
        if rule == "lottery" and not self.amid:  # who was refused, by its tenant's cap say, has not had its quantum
            queue = [name for name in chosen if not self.placer.taken.get(name)] + queue
        allocation = {j.name: self.placer.taken.get(j.name, EMPTY) for j in self.snapshot.jobs}
        return Proposal(
            allocation=allocation,
            shares=self._shares(part, rights),
            reasons=self._reasons(allocation, part, passes, rights),
            state=self._next(part, passes, rights, queue),
            notes=tuple(
                f"trade undone: {each.fast_gpus:g} {each.fast} of {each.high} back to {each.low}"
                for each in rights.undone
            ),
        )

    def _drawn(self, rule: str, queue: list[JobName]) -> tuple[list[JobName], list[JobName]]:
        """Who wins this quantum, and the claims that wait: a lottery of its own a quantum, the same in a replay."""
        random = Random(f"{self.context.seed}:{self.state.get('quantum', 0)}")
        able = [j for j in self.jobs if j.name in self.site.homes and self._within_cap(j)]
        tickets = {j.name: self.per_gpu[j.tenant] for j in able}
        homes = {j: self.site.homes[j] for j in tickets}
        if rule == "lottery":
            return gang_lottery(homes, tickets, self.site.gpus, queue, random)
        return backfill_lottery(homes, tickets, self.site.gpus, random), queue

    def _within_cap(self, job: Job) -> bool:
        """Whether its gang could ever run beside no other of its tenant; what runs already may stay as it is."""
        cap = self.placer.cap(job.tenant)
        return cap is None or self.size[job.name] <= cap or bool(job.allocation)

    # --- who is entitled to what ---

    def _rights(self) -> _Rights:
        everything, fair = sum(self.total.values()), self.fair
        start = {
            tenant: {t: fair[tenant] * n / everything for t, n in self.total.items()} if everything else {}
            for tenant in self.tickets
        }
        before = [Trade(**t) for t in self.state.get("trades", ())]
        if not self.options["trading"] or len(self.total) < 2:
            return _Rights(fair, start, [], before)
        types = [t for t in self.speeds.present if t in self.total]
        have, trades = trade(start, self._speed(types), types, 0.0, self.options["trade_threshold"], self.demand)
        return _Rights(fair, have, trades, undone(before, trades))

    def _speed(self, types: Sequence[GpuType]) -> dict[str, dict[GpuType, float]]:
        """Mean speed-up of a tenant's jobs by type; only types on which all its jobs were measured."""
        out: dict[str, dict[GpuType, float]] = {}
        known: dict[int, Job] = {}
        of_tenant: dict[str, list[Job]] = {tenant: [] for tenant in self.tickets}
        for job in self.jobs:
            of_tenant[job.tenant].append(job)
        for tenant, jobs in of_tenant.items():
            if all(j.throughput for j in jobs):
                kinds = [self.speeds.kind(j) for j in jobs]
                for kind, job in zip(kinds, jobs, strict=True):
                    known.setdefault(kind, job)
                for t in types:
                    of_kind = {kind: self.speeds.speedup(known[kind], t) for kind in set(kinds)}
                    if all(of_kind.values()):
                        out.setdefault(tenant, {})[t] = sum([of_kind[kind] for kind in kinds]) / len(kinds)
                out.setdefault(tenant, {})
        return out

    # --- where jobs live ---

    def _settle(self, rights: _Rights) -> None:
        site, demand = self.site, {t: dict.fromkeys(self.total, 0.0) for t in self.tickets}
        new: dict[str, deque[Job]] = {}
        before = self.state.get("homes", {})
        for job in self.jobs:
            home = before.get(job.name) or job.allocation
            size = self.size[job.name]
            if home and site.stands(home) and sum(home.values()) == size and len(site.types(home)) == 1:
                site.settle(job, home, self.per_gpu[job.tenant])
                demand[job.tenant][gpu_type(site, home)] += size
            else:
                new.setdefault(job.tenant, deque()).append(job)
        # Algorithm 2, line 2: the tenant that uses least of its share is next.
        heap = [(sum(demand[t].values()) / max(rights.fair[t], 1e-9), t) for t in new]
        heapq.heapify(heap)
        while heap:
            tenant = heap[0][1]
            uses = demand[tenant]
            self._house(new[tenant].popleft(), rights.have[tenant], uses)
            if new[tenant]:
                heapq.heapreplace(heap, (sum(uses.values()) / max(rights.fair[tenant], 1e-9), tenant))
            else:
                heapq.heappop(heap)
        left = 0 if self.amid else int(self.options["migrations"])
        left -= self._change_types(rights, demand, left)
        for name, home in rebalance(site, self.jobs, self.per_gpu, self.options["load_threshold"], left):
            self.moves[name] = f"balances load: moves to {reasons.places(home)}"

    def _house(self, job: Job, tickets: Mapping[GpuType, float], demand: dict[GpuType, float]) -> None:
        size = self.size[job.name]
        alike = (self.speeds.kind(job), size)
        rated = self._rated.get(alike)
        if rated is None:
            rated = self._rated[alike] = rates(job, size, self.speeds)
        for t in types_by_worth(rated, size, tickets, demand):
            home = self.site.best(size, t, self.equal)
            if home:
                self.site.settle(job, home, self.per_gpu[job.tenant])
                demand[t] += size
                return

    def _change_types(self, rights: _Rights, demand: Mapping[str, dict[GpuType, float]], most: int) -> int:
        """Moves between GPU types (§3.5): the job that adds most to its tenant's progress, while that is more than
        the threshold (as a part of the job's own rate at full service)."""
        done = 0
        while done < most:
            best: tuple[float, Job, GpuType, Home] | None = None
            alike: set[tuple[str, int, GpuType, Gpus]] = set()  #: who is like one before it adds no more than that
            for job in self.jobs:
                home = self.site.homes.get(job.name)
                if home is None or job.name in self.moves:
                    continue
                here, size = gpu_type(self.site, home), self.size[job.name]
                like = (job.tenant, self.speeds.kind(job), here, size)
                if like in alike:
                    continue
                alike.add(like)
                have, wants = rights.have[job.tenant], demand[job.tenant]
                by_type = dict(rates(job, size, self.speeds))
                rate = by_type.get(here, 0.0)
                lost = rate / size * added(have.get(here, 0.0), wants[here] - size, size)
                for t, there_s in by_type.items():
                    if t == here or t not in self.total:
                        continue
                    won = there_s / size * added(have.get(t, 0.0), wants[t], size)
                    gain = (won - lost) / max(rate, 1e-9)
                    if gain > self.options["migration_threshold"] and (best is None or gain > best[0] + 1e-12):
                        there = self.site.best(size, t, self.equal)
                        if there:
                            best = (gain, job, t, there)
            if best is None:
                break
            gain, job, t, there = best
            demand[job.tenant][gpu_type(self.site, self.site.homes[job.name])] -= self.size[job.name]
            demand[job.tenant][t] += self.size[job.name]
            self.site.leave(job, self.per_gpu[job.tenant])
            self.site.settle(job, there, self.per_gpu[job.tenant])
            self.moves[job.name] = f"moves to {t}, which adds {gain:.0%} of its rate to what {job.tenant} achieves"
            done += 1
        return done

    def _parts(self, rights: _Rights) -> dict[JobName, float]:
        out: dict[JobName, float] = {}
        by_type: dict[GpuType, dict[JobName, Home]] = {t: {} for t in self.total}
        for name, home in self.site.homes.items():
            by_type[gpu_type(self.site, home)][name] = home
        tenant_of = {j.name: j.tenant for j in self.jobs}
        for t, homes in by_type.items():
            entitled = {tenant: have.get(t, 0.0) for tenant, have in rights.have.items()}
            gpus = {n: k for n, k in self.site.gpus.items() if self.site.type_of[n] == t}
            out.update(parts(homes, tenant_of, entitled, gpus))
        return out

    # --- who runs ---

    def _passes(self, part: Mapping[JobName, float]) -> dict[JobName, int]:
        """Passes now: those of the state, charged with what was served since; new jobs join."""
        quantum = self.options["quantum"]
        old, old_part, attained = (self.state.get(k, {}) for k in ("passes", "parts", "attained"))
        out: dict[JobName, int] = {}
        for job in self.jobs:
            if job.name in old:
                served = max(sum(job.attained.values()) - attained.get(job.name, 0.0), 0.0)
                quanta = served / (self.size[job.name] * quantum)
                out[job.name] = advance(old[job.name], old_part.get(job.name, 1.0), quanta)
        level = self._levels(out)
        settled = self._carried_over(out, part, level)
        out = dict(settled)
        homes = self.site.homes
        beside: dict[NodeName, list[int]] = {}
        for name, pass_ in settled.items():
            for node in homes.get(name, ()):
                beside.setdefault(node, []).append(pass_)
        for job in self.jobs:
            name = job.name
            if name in out:
                continue
            home = homes.get(name, EMPTY)
            near = [p for node in home for p in beside.get(node, ())] if beside else []
            out[name] = join(near, part.get(name, 1.0), _level_of(home, level))
        return out

    def _levels(self, charged: Mapping[JobName, int]) -> dict[NodeName, float]:
        """The virtual time of each node, of those that lived there."""
        before: Mapping[JobName, float] = self.state.get("parts", {})
        homes: Mapping[JobName, Home] = self.state.get("homes", {})
        there: dict[NodeName, list[JobName]] = {}
        for name in charged:
            for node in homes.get(name, EMPTY):
                there.setdefault(node, []).append(name)
        level = {}
        for node, names in there.items():
            weights = [self.size[name] * before.get(name, 1.0) for name in names]
            level[node] = mean([charged[name] for name in names], weights)
        return level

    def _carried_over(
        self, charged: Mapping[JobName, int], part: Mapping[JobName, float], level: Mapping[NodeName, float]
    ) -> dict[JobName, int]:
        """Passes where parts and homes are others now. What a job is behind or ahead of those beside it, in GPU time,
        is the same before and after (Waldspurger and Weihl 1995, on tickets that change): a quantum that was a hundred
        of its own once is not to be paid for ever, and a node's virtual time is its own."""
        homes: Mapping[JobName, Home] = self.state.get("homes", {})
        before: Mapping[JobName, float] = self.state.get("parts", {})
        out = dict(charged)
        for name, pass_ in charged.items():
            was, now = homes.get(name), self.site.homes.get(name)
            then = max(before.get(name, 1.0), LEAST)
            of_it = max(part.get(name, 1.0), LEAST)
            if was and now and (was != now or then != of_it):
                ahead = (pass_ - _level_of(was, level)) * then
                out[name] = round(_level_of(now, level) + ahead / of_it)
        return out

    def _stride(self, passes: Mapping[JobName, int], part: Mapping[JobName, float]) -> list[JobName]:
        small: dict[NodeName, list[Contender]] = {}
        large: list[tuple[Contender, Home]] = []
        for job in self.jobs:
            home = self.site.homes.get(job.name)
            if home is None:
                continue
            entry = Contender(job.name, self.size[job.name], passes[job.name], job.order)
            if len(home) > 1:
                large.append((entry, home))
            else:
                small.setdefault(next(iter(home)), []).append(entry)
        return split_stride(self.site.gpus, small, large, self._aggregates(small, part) if large else {})

    def _aggregates(
        self, small: Mapping[NodeName, Sequence[Contender]], part: Mapping[JobName, float]
    ) -> dict[str, int]:
        """Pass of a node's small jobs together: the mean of theirs, weighted by the GPUs they are entitled to.

        Stride service of the aggregate advances that mean by exactly the aggregate's stride, so it needs no account
        of its own and cannot drift from what its jobs were charged.
        """
        out: dict[str, int] = {}
        for node, entries in small.items():
            weights = [e.size * part.get(e.name, 1.0) for e in entries]
            out[node] = round(mean([e.pass_ for e in entries], weights))
        return out

    def _run(self, chosen: Sequence[JobName], passes: Mapping[JobName, int]) -> None:
        by_name = {j.name: j for j in self.jobs}
        for name in chosen:
            stay = self.placer.keep(by_name[name]) if self.amid else None
            as_it_is = sum((stay or EMPTY).values()) >= self.size[name]  # more, where it has what others left idle
            self._take(by_name[name], stay if stay and as_it_is else self.site.homes[name])
        waiting = self._waiting()
        waiting.sort(key=lambda j: (passes[j.name], -self.size[j.name], j.order))
        idle = self.placer.free()
        for job in waiting:  # §3.3: idle GPUs elsewhere are worth a migration, and who waits is suspended anyway
            if not (idle or job.allocation):
                continue
            homes = (self.placer.best(job, self.size[job.name], t) for t in reversed(self.speeds.types(job)))
            if found := next((h for h in homes if h), None):
                self.placer.take(job, found)
                idle = self.placer.free()
                if not self.site.stands(found):  # it may stay on a draining node, but not live there
                    continue
                self.site.leave(job, self.per_gpu[job.tenant])
                self.site.settle(job, found, self.per_gpu[job.tenant])
                self.moves[job.name] = f"moves to GPUs that are idle on {reasons.places(found)}"
        self._leave_none_idle()

    def _waiting(self) -> list[Job]:
        """Who has nothing yet, and could move or be given something."""
        waiting = [j for j in self.jobs if j.name not in self.placer.taken]
        gives_back = any(j.allocation and j.shape is not None for j in waiting)  #: what nobody might have beside it
        if self.placer.free() or gives_back:
            return waiting
        return [j for j in waiting if j.allocation]

    def _leave_none_idle(self) -> None:
        """What is left goes to gangs that no GPUs of one type hold (now, or ever), and to divisible demand."""
        for job in self.snapshot.jobs:
            if job.allocation and job.name not in self.placer.taken:
                self.placer.drop(job)
        divisible, moved = [j for j in self.working if j.gpus.max is None], True
        placer, taken = self.placer, self.placer.taken
        while moved:  # who moves to grow leaves a place to others
            idle = placer.free()
            for job in self.working:
                if job.name not in taken and (idle or job.allocation):
                    place = placer.best(job, placer.usual(job))
                    if place and (not job.throughput or self.speeds.rate(job, place)):
                        placer.take(job, place)
                        idle = placer.free()
            moved = bool(fill(placer, divisible, waiting=False))

    def _take(self, job: Job, home: Mapping[NodeName, Gpus]) -> None:
        try:
            self.placer.take(job, home)
        except ValueError:  # a tenant's cap, CPUs and memory, or a shape that homes know nothing of
            found = self.placer.best(job, sum(home.values())) if job.shape is not None else None
            self.placer.take(job, found or EMPTY)  # nothing: the job waits, and `waits` says why

    # --- what is said and kept ---

    def _others(self, tenant: str, names: Collection[JobName]) -> list[JobName]:
        return [job.name for job in self.jobs if job.tenant == tenant and job.name not in names]

    def _shares(self, part: Mapping[JobName, float], rights: _Rights) -> dict[JobName, dict[GpuType, float]]:
        out: dict[JobName, dict[GpuType, float]] = {}
        homes, size = self.site.homes, self.size
        for job in self.snapshot.jobs:
            name = job.name
            home = homes.get(name)
            out[name] = {gpu_type(self.site, home): round(part.get(name, 0.0) * size[name], 6)} if home else {}
        divisible: dict[str, list[Job]] = {}
        for job in self.jobs:
            if job.gpus.max is None:
                divisible.setdefault(job.tenant, []).append(job)
        for tenant, jobs in divisible.items():
            others = self._others(tenant, {j.name for j in jobs})
            for j in jobs:
                out[j.name] = {}
            for t, entitled in rights.have[tenant].items():
                rigid = sum(out[other].get(t, 0.0) for other in others)
                able = [j for j in jobs if t in self.speeds.types(j)]
                for j in able:
                    out[j.name][t] = round(max(entitled - rigid, 0.0) / len(able), 6)
        return out

    def _reasons(
        self,
        allocation: Mapping[JobName, Any],
        part: Mapping[JobName, float],
        passes: Mapping[JobName, int],
        rights: _Rights,
    ) -> dict[JobName, Reason]:
        out = self._homeless(allocation)
        shares = {tenant: {t: round(x, 4) for t, x in have.items()} for tenant, have in rights.have.items()}
        rooms = {tenant: self.placer.room(tenant) for tenant in self.tickets}
        homes, per_gpu = self.site.homes, self.per_gpu
        for job in self.jobs:
            name, tenant = job.name, job.tenant
            home = homes.get(name)
            if home is None:
                continue
            mine = part[name]
            numbers = {
                "pass": passes[name],
                "part": round(mine, 4),
                "home": home,
                "tenant_gpus": shares[tenant],
                "tickets_per_gpu": per_gpu[tenant],
            }
            now = allocation[name]
            seen = reasons.outcome(job, now, self.speeds) if now or job.allocation else None
            if seen is not None and seen.code is not Code.PREEMPTED:
                moved = self.moves.get(name)
                text = f"{seen.text}; {moved}" if moved else seen.text
                out[name] = Reason(seen.code, text, {**seen.numbers, **numbers})  # a gang has one size
                continue
            room = rooms[tenant]
            if room is not None and room < self.size[name]:
                out[name] = reasons.waits(job, Code.WAITS_CAP, self.size[name], self.placer)
                continue
            held, there = job.held, reasons.places(home)
            text = f"takes turns on {there}: it may run {mine:.0%} of the quanta, and jobs served less go first now"
            change = f"more tickets for {tenant}, or fewer jobs on {there}"
            code = Code.PREEMPTED if held else Code.WAITS_TURN
            out[name] = Reason(code, text, {"gpus": 0, "held": held, **numbers}, change)
        return out

    def _homeless(self, allocation: Mapping[JobName, Any]) -> dict[JobName, Reason]:
        """Jobs that could run, but on GPUs of no one type."""
        out: dict[JobName, Reason] = {}
        for job in self.snapshot.jobs:
            if job.name in self.site.homes or job.work.left == 0:
                continue
            size = self.placer.usual(job)
            if not self.placer.possible(job, size):
                continue
            seen = reasons.outcome(job, allocation[job.name], self.speeds)
            why = f"no one GPU type holds {reasons.gpus(size)}, so it has no home and runs on what others leave idle"
            change = "a smaller minimum, or more nodes of one type"
            if seen is not None:
                out[job.name] = Reason(seen.code, f"{seen.text}; {why}", seen.numbers, change)
            else:
                code = self.placer.why_not(job, size)
                out[job.name] = Reason(code, why, {"gpus": 0, "held": job.held, "smallest": size}, change)
        return out

    def _next(
        self, part: Mapping[JobName, float], passes: Mapping[JobName, int], rights: _Rights, queue: list[JobName]
    ) -> dict[str, Any]:
        return {
            "quantum": self.state.get("quantum", 0) + (not self.amid),
            "at_s": self.began,
            "running": sorted(n for n, place in self.placer.taken.items() if place),
            "homes": {n: dict(h) for n, h in sorted(self.site.homes.items())},
            "passes": {j.name: passes[j.name] for j in self.jobs},
            "parts": {j.name: part.get(j.name, 1.0) for j in self.jobs},
            "attained": {j.name: sum(j.attained.values()) for j in self.jobs},
            "trades": [asdict(t) for t in rights.trades],
            "queue": queue,
        }


def _level_of(home: Mapping[NodeName, Gpus], level: Mapping[NodeName, float]) -> float:
    """The virtual time of where a job lives; a node on which nobody lived begins at 0."""
    if not level:
        return 0.0
    return mean([level.get(node, 0.0) for node in home], list(home.values()))
