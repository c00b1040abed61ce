"""What does a liar gain under each policy? The worst found, a kind of lie, by a search over small random instances.

A small cluster of one to three GPU types, two to four tenants of one or two jobs each, arrivals in any order. One
tenant lies (`policy/trials/lies.py` says how), the others tell the truth; what that brings it is told in parts of its
fair share (`policy/trials/strategy.py`). A policy with chance in it is asked under several seeds, and its worst case
again under many others, so that no gain is only luck. What is found is a lower bound of what a liar can gain.

The worst instance of each policy is kept (`tests/policy/worst_lies.jsonl`), and a test replays it. The table goes to
docs/policies/strategy.md, between its two marks.

    python benchmarks/strategy.py [--instances 40] [--policy NAME ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from _record import record

from policy import catalogue
from policy.contract import Entry
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Work
from policy.text import instance
from policy.trials.lies import Told, told
from policy.trials.strategy import CHANCE, ROUNDS, Gain, gain, value

KEPT = Path(__file__).parents[1] / "tests" / "policy" / "worst_lies.jsonl"
TYPES = ("k80", "p100", "v100")
#: below this part of a fair share nothing was gained
NOISE = 1e-6
#: and below this nothing is told
LITTLE = 0.005
PAGE = Path(__file__).parents[1] / "docs" / "policies" / "strategy.md"
MARKS = ("<!-- table: benchmarks/strategy.py -->", "<!-- end of table -->")


def world(random: Random) -> Snapshot:
    """A small cluster that is asked for more than it has, with nothing running yet."""
    types = TYPES[: random.choice((1, 2, 2, 3))]
    nodes = tuple(
        Node(f"n{i}", t, random.choice((1, 2, 4)), rack="r") for i, t in enumerate(random.choices(types, k=3))
    )
    present = tuple(t for t in types if any(n.gpu_type == t for n in nodes))
    tenants = tuple(Tenant(f"t{i}", random.choice((1.0, 1.0, 2.0))) for i in range(random.randint(2, 4)))
    jobs = []
    for tenant in tenants:
        for k in range(random.choice((1, 1, 2))):
            jobs.append(_job(random, f"{tenant.name}-{k}", tenant.name, present))
    return Snapshot(Cluster(nodes, gpu_types=present), tuple(jobs), tenants, now_s=100.0)


def _job(random: Random, name: str, tenant: str, types: Sequence[str]) -> Job:
    low = random.choice((1, 1, 2))
    high = low if random.random() < 0.3 else random.choice((low, 2 * low, 4 * low))
    exponent, faster, rate = random.uniform(0.6, 1.0), 1.0, random.choice((1.0, 5.0))
    table = {}
    for gpu_type in types:
        table[gpu_type] = {n: round(rate * faster * float(n**exponent), 4) for n in range(1, high + 1)}
        faster *= random.uniform(1.0, 3.0)
    return Job(
        name=name,
        tenant=tenant,
        app=name if random.random() < 0.5 else tenant,
        gpus=GpuRange(random.choice((low, high)), low, high),
        submitted_s=float(random.randint(0, 90)),
        work=Work(float(random.choice((100, 1000, 10_000)))),
        throughput=table,
        loss=tuple((float(n), round(1.0 + 4.0 / (n + 4.0), 4)) for n in range(0, 60, 10)),
    )


Case = tuple[Snapshot, str, Told, Gain]


def search(entry: Entry, instances: int) -> dict[str, Case]:
    """kind of lie -> the instance, the liar, its lie and its gain, of the worst case found."""
    worst: dict[str, Case] = {}
    for number in range(instances):
        random = Random(number)
        snapshot = world(random)
        tenant = random.choice(snapshot.tenants).name
        truth = value(snapshot, tenant, Told("", "the truth", snapshot), entry)
        for lie in told(snapshot, tenant):
            got = Gain(truth, value(snapshot, tenant, lie, entry))
            if kind(lie) not in worst or got.gain > worst[kind(lie)][3].gain + NOISE:
                worst[kind(lie)] = (snapshot, tenant, lie, got)
    return worst


def kind(lie: Told) -> str:
    """The table's columns: over- and understating apart."""
    if lie.kind in ("throughput", "work"):
        over = float(lie.what.rsplit(" ", 1)[1]) > 1
        return {"throughput": "speed", "work": "length"}[lie.kind] + (" over" if over else " under")
    if lie.kind == "split":
        return "split, one app" if "same app" in lie.what else "split, two apps"
    return {"idle": "idle", "range": "demand", "demand": "demand"}[lie.kind]


def found(entry: Entry, instances: int) -> tuple[dict[str, Any], str | None]:
    """The figures of the worst of each kind, and the worst of all as a line of the kept file; None where none pays."""
    figures: dict[str, Any] = {}
    worst: tuple[float, dict[str, Any]] | None = None
    for name, (snapshot, tenant, lie, seen) in sorted(search(entry, instances).items()):
        got = gain(snapshot, tenant, lie, entry, judged=True) if entry.name in CHANCE else seen
        figures[name] = {"gain": round(got.gain, 4), "truth": round(got.truth, 4), "what": lie.what}
        if got.gain > NOISE and (worst is None or got.gain > worst[0]):
            document = json.loads(instance.to_text(snapshot, "json"))
            line = {"policy": entry.name, "liar": tenant, "lie": lie.what, "gain": round(got.gain, 4)}
            worst = (got.gain, {**line, "instance": document})
    return figures, None if worst is None else json.dumps(worst[1], separators=(",", ":"))


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: a row a policy, the worst gain of each kind in hundredths of a fair share."""
    kinds = sorted({kind for by in results.values() for kind in by})
    lines = [f"| policy | {' | '.join(kinds)} |", f"|---|{'---:|' * len(kinds)}"]
    for policy, by in results.items():
        cells = [f"{by[k]['gain']:.0%}" if k in by and by[k]["gain"] >= LITTLE else "-" for k in kinds]
        lines.append(f"| `{policy}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def on_page(results: Mapping[str, Mapping[str, Any]]) -> None:
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{table(results)}\n\n{MARKS[1]}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=40)
    parser.add_argument("--policy", action="append", help="only these; nothing is recorded then")
    options = parser.parse_args()
    names = options.policy or [n for n, e in catalogue.entries().items() if catalogue.is_own(e)]
    results, seconds, kept = {}, {}, []
    for name in names:
        began = time.process_time()
        results[name], line = found(catalogue.find(name), options.instances // (4 if name == "themis" else 1))
        kept += [line] if line is not None else []
        seconds[name] = round(time.process_time() - began, 1)
        print(f"{name}: {seconds[name]} s", file=sys.stderr)
    print(table(results))
    if options.policy:
        print(json.dumps(results, indent=1))
        return 0
    record(
        Path(__file__),
        {"instances": options.instances, "rounds": ROUNDS, "worst": results, "cpu_s": seconds},
        packages=("highspy", "pulp"),
    )
    on_page(results)
    KEPT.write_text("".join(f"{line}\n" for line in kept))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
