"""How long does one round of every policy take, and how does that grow?

    python benchmarks/policies.py [--sizes 100,300,1000,3000] [--policies fifo,themis] [--most 3]

n jobs of 1 to 32 GPUs on n GPUs of two types (the `mixed` snapshot of round_greedy.py: half of the jobs rigid, half
elastic, a third of the GPUs held). A round is `policy.decide.decide`: the policy, the check of its proposal, a reason a
job and the whole certificate. The floor, in the same run, is a bare sort of the jobs. CPU seconds of one process, one
round each after one that imports. A policy that took more than --most seconds is not asked for the next size. The
exponent is the slope of log seconds over log n, fitted over the three largest sizes it was asked for.

Writes results/policies.json; without --policies also the curves (docs/images/growth.svg) and the table in
docs/policies/growth.md, between its two marks.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from _record import RESULTS, record
from round_greedy import snapshot

from policy.catalogue import entries
from policy.decide import decide

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MARKS = ("<!-- table: benchmarks/policies.py -->", "<!-- end of table -->")


def seconds(policy: str, many: int) -> dict[str, Any]:
    asked = snapshot("mixed", many)
    started = time.process_time()
    decision = decide(asked, policy, time_limit_s=60.0)
    took = time.process_time() - started
    started = time.process_time()
    sorted(asked.jobs, key=lambda j: j.order)
    floor = max(time.process_time() - started, 1e-6)
    how = decision.solver.termination.value if decision.solver is not None else None
    return {"jobs": many, "round_s": round(took, 4), "times_the_floor": round(took / floor), "solver": how}


def exponent(rows: list[dict[str, Any]]) -> float | None:
    last = rows[-3:]
    if len(last) < 2:
        return None
    return round(float(np.polyfit(np.log([r["jobs"] for r in last]), np.log([r["round_s"] for r in last]), 1)[0]), 2)


def table(found: dict[str, Any], sizes: list[int]) -> str:
    head = "| policy | " + " | ".join(f"n = {n:,}" for n in sizes) + " | grows as |"
    lines = [head, "|---|" + "---:|" * (len(sizes) + 1)]
    for name, one in found.items():
        cells = {r["jobs"]: f"{r['round_s']:.3g} s" for r in one["rows"]}
        power = "" if one["exponent"] is None else f"n^{one['exponent']:g}"
        lines.append(f"| `{name}` | " + " | ".join(cells.get(n, "") for n in sizes) + f" | {power} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "horae"
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 4), layout="constrained")
    left, middle, right = axes
    programs = ("themis", "oef-", "gavel-")
    for name, one in found.items():
        axis = middle if name.startswith(programs) else left
        axis.plot([r["jobs"] for r in one["rows"]], [r["round_s"] for r in one["rows"]], marker=".", label=name)
    oef = json.loads((RESULTS / "oef_cooperative.json").read_text())["rows"]
    for key, label in (("ours_s", "ours"), ("bare_generation_s", "bare HiGHS"), ("literal_s", "all rows at once")):
        points = [(r["tenants"], r[key]) for r in oef if key in r]
        right.plot([n for n, _ in points], [s for _, s in points], marker=".", label=label)
    for axis, title in (
        (left, "n jobs on n GPUs: rules"), (middle, "programs"), (right, "cooperative OEF, k = 10, n tenants")
    ):  # fmt: skip
        axis.set(xscale="log", yscale="log", title=title, xlabel="n")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    left.set_ylabel("CPU seconds a round")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,300,1000,3000")
    parser.add_argument("--policies", default="", help="comma-separated; default: all")
    parser.add_argument("--most", type=float, default=3.0, help="seconds beyond which larger sizes are left out")
    given = parser.parse_args()
    sizes = [int(n) for n in given.sizes.split(",")]
    found: dict[str, Any] = {}
    for name in [n for n in given.policies.split(",") if n] or list(entries()):
        seconds(name, 16)
        rows: list[dict[str, Any]] = []
        for n in sizes:
            rows.append(seconds(name, n))
            if rows[-1]["round_s"] > given.most:
                break
        found[name] = {"rows": rows, "exponent": exponent(rows)}
        print(name, found[name]["exponent"], [r["round_s"] for r in rows], flush=True)
    record(Path(__file__), {"question": "CPU seconds of one round", "policies": found}, ("highspy", "pulp", "numpy"))
    if not given.policies:
        page = DOCS / "policies" / "growth.md"
        before, _, rest = page.read_text().partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        page.write_text(f"{before}{MARKS[0]}\n\n{table(found, sizes)}\n{MARKS[1]}{after}")
        draw(found, DOCS / "images" / "growth.svg")


if __name__ == "__main__":
    main()
