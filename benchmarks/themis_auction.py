"""How long do a Themis auction and an agent's bid take at 256 GPUs and 40 apps, and against which floor?

A rolling cluster: apps run under leases, every round offers what is free, expired or freed, the worst-off bid. Times
are CPU seconds of one core (the machine may be shared); the paper's are wall times on its own (§6.2.3: agent 29 ms
median, 334 ms p95; arbiter 354 and 1,398 ms, Gurobi). The floor: the same winner determination without payments, one
bare HiGHS solve on the same matrix. `--all N` adds N auctions of the worst case, which the paper avoids by its
filter: all 40 apps bid for all 256 GPUs at once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._record import record
from policy.contract import Context
from policy.model import Cluster, GpuRange, Job, Node, Slowdown, Snapshot, Tenant, Work
from policy.themis import round as themis
from policy.themis.options import Options
from policy.throughput import Throughput

PAPER = {"agent_s": {"median": 0.029, "p95": 0.334}, "arbiter_s": {"median": 0.354, "p95": 1.398}}


def cluster() -> Cluster:
    """256 GPUs: 24 nodes of 8, 12 of 4, 16 of 1, in 4 racks."""
    nodes = []
    for size, count in ((8, 24), (4, 12), (1, 16)):
        nodes += [Node(f"n{size}-{i}", "v100", size, f"r{i * 4 // count}") for i in range(count)]
    return Cluster(tuple(nodes), gpu_types=("v100",))


def job(i: int, now_s: float, draw: random.Random) -> Job:
    most = draw.choice([1, 2, 4, 8, 8, 16, 32])
    rack = draw.uniform(1.0, 1.5)
    scale = draw.uniform(0.8, 1.0)
    return Job(
        name=f"j{i}",
        tenant=f"j{i}",
        app=f"j{i}",
        gpus=GpuRange(most, 1 if draw.random() < 0.5 else most, most),
        submitted_s=now_s,
        work=Work(draw.lognormvariate(11, 1.2), 0.0),
        throughput={"v100": {n: n**scale for n in (1, 2, 4, 8, 16, 32)}},
        slowdown=Slowdown(1.0, rack, rack * draw.uniform(1.0, 1.5)),
    )


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median": round(percentile(values, 0.5), 5),
        "p95": round(percentile(values, 0.95), 5),
        "max": round(max(values), 5),
        "n": len(values),
    }


def rolling(rounds: int, apps: int, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    where, now_s, state = cluster(), 0.0, {}
    live = {j.name: j for j in (job(i, 0.0, draw) for i in range(apps))}
    number, history = apps, [(0.0, apps)]
    arbiter, agent, solves, whole = [], [], [], []
    for _ in range(rounds):
        jobs = tuple(live.values())
        tenants = tuple(Tenant(j.tenant) for j in jobs)
        snapshot = Snapshot(where, jobs, tenants, now_s, active_apps=tuple(history), state=state)
        context = Context(Throughput(where))
        started = time.process_time()
        this = themis.run(snapshot, {}, context)
        whole.append(time.process_time() - started)
        if this.bids:
            fresh = themis.opened(snapshot, Options(), context)
            fresh.classes = this.classes
            for bid in this.bids:
                started = time.process_time()
                themis._rows(fresh, bid.app)
                agent.append(time.process_time() - started)
            started = time.process_time()
            themis._auction(this, context)
            arbiter.append(time.process_time() - started)
            solves.append(this.outcome.solves if this.outcome else 0)
        state = themis._state(this)
        now_s, number = advance(live, this, context, now_s, number, draw)
        history.append((now_s, len(live)))
    return {
        "rounds": rounds,
        "arbiter_s": summary(arbiter),
        "agent_s": summary(agent),
        "decision_s": summary(whole),
        "solves_a_round": round(sum(solves) / len(solves), 2),
        "auctions_per_s": round(len(arbiter) / sum(arbiter), 1),
    }


def advance(
    live: dict[str, Job], this: themis.Round, context: Context, now_s: float, number: int, draw: random.Random
) -> tuple[float, int]:
    """To the next lease's or job's end; a finished app is followed by a new one."""
    rates = {n: context.speeds.rate(j, this.gangs.get(n, {})) or 0.0 for n, j in live.items()}
    ends = [t for n in live for times in this.leases.get(n, {}).values() for t in times if t > now_s]
    ends += [now_s + (j.work.left or 0.0) / rates[n] for n, j in live.items() if rates[n] > 0]
    until = min([now_s + 600.0, *ends])
    for n, j in list(live.items()):
        total = j.work.total or 0.0
        done = min(j.work.done + rates[n] * (until - now_s), total)
        if total - done <= 1e-6 * total:
            del live[n]
            live[f"j{number}"] = job(number, until, draw)
            number += 1
        else:
            live[n] = replace(
                j,
                work=Work(total, done),
                allocation=this.gangs.get(n, {}),
                lease_until=this.leases.get(n, {}),
            )
    return until, number


def crowded(seeds: int, apps: int) -> dict[str, Any]:
    """All apps bid for everything; the time of the one program without payments is the floor."""
    times, floor = [], []
    for seed in range(seeds):
        draw = random.Random(seed)
        jobs = tuple(replace(job(i, 0.0, draw), submitted_s=draw.uniform(0, 36e3)) for i in range(apps))
        snapshot = Snapshot(cluster(), jobs, tuple(Tenant(j.tenant) for j in jobs), 36e3)
        context = Context(Throughput(snapshot.cluster), time_limit_s=120.0)
        this = themis.opened(snapshot, Options(fairness_knob=0.0), context)
        themis._bid(this)
        started = time.process_time()
        themis._auction(this, context)
        times.append(time.process_time() - started)
        floor.append(one_solve(this))
    return {
        "arbiter_s": summary(times),
        "one_bare_solve_s": summary(floor),
        "ratio": round(sum(times) / sum(floor), 2),
        "auctions_per_s": round(len(times) / sum(times), 1),
        "ratio_arbiter": against_paper(summary(times), "arbiter_s"),
    }


def against_paper(here: dict[str, float], who: str) -> dict[str, float]:
    return {k: round(here[k] / PAPER[who][k], 3) for k in ("median", "p95")}


def one_solve(this: themis.Round) -> float:
    from math import log

    from policy.parts.solver import Backend
    from policy.themis.auction.auction import _Market

    null = {b.app: log(b.null_rho) for b in this.bids}
    market = _Market(this.bids, this.classes, this.offered, (), null, 0, 120.0, Backend.HIGHS)
    market._build()
    started = time.process_time()
    market.program.solve(time_limit_s=120.0)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--all", type=int, default=20, metavar="N", help="also N auctions in which all apps bid")
    given = parser.parse_args()
    result: dict[str, Any] = {"question": __doc__.splitlines()[0], "gpus": 256, "apps": 40, "paper_wall": PAPER}
    result["here_cpu"] = rolling(given.rounds, 40, 1)
    for who in ("arbiter_s", "agent_s"):
        result[f"ratio_{who[:-2]}"] = against_paper(result["here_cpu"][who], who)
    if given.all:
        result["all_apps_bid"] = crowded(given.all, 40)
    record(Path(__file__), result, ("highspy", "pulp"))
    print(result)


if __name__ == "__main__":
    main()
