"""Draws `themis.svg` from a real decision: what every app won, paid and found. `python docs/images/themis.py`"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.decide import decide
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Work

COLOURS = {"kept": "#2a6f97", "leftover": "#e09f3e", "paid": "#c8c8c8"}


def snapshot() -> Snapshot:
    nodes = tuple(Node(f"n{i}", "v100", 4, f"r{i // 2}") for i in range(4))
    jobs = tuple(
        Job(n, n, n, GpuRange(8, 1, 8), submitted_s=s, work=Work(t), throughput={"v100": {1: 1.0}})
        for n, s, t in (("long", 0.0, 9e4), ("short", 300.0, 3e3), ("middle", 100.0, 2e4), ("new", 580.0, 1e4))
    )
    return Snapshot(Cluster(nodes, gpu_types=("v100",)), jobs, tuple(Tenant(j.name) for j in jobs), 600.0)


def main() -> None:
    decision = decide(snapshot(), "themis", {"fairness_knob": 0.25}, seed=1)
    rows = []
    for i, (job, reason) in enumerate(decision.reasons.items()):
        n, y, x = reason.numbers, 34 * i + 34, 90
        rows.append(f'<text x="10" y="{y + 15}">{job}</text>')
        for part, gpus in (("kept", n["kept"]), ("paid", n["won"] - n["kept"]), ("leftover", n["leftover"])):
            rows.append(f'<rect x="{x}" y="{y}" width="{30 * gpus}" height="20" fill="{COLOURS[part]}"/>')
            x += 30 * gpus
        share = "did not bid" if n["kept_fraction"] is None else f"c = {n['kept_fraction']:.2f}"
        rows.append(f'<text x="{x + 8}" y="{y + 15}">rho {n["rho"]:.2f}, {share}</text>')
    legend = "".join(
        f'<rect x="{90 + 110 * i}" y="8" width="12" height="12" fill="{c}"/><text x="{106 + 110 * i}" y="19">{p}</text>'
        for i, (p, c) in enumerate(COLOURS.items())
    )
    height = 34 * len(decision.reasons) + 40
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 {height}" font-family="sans-serif" font-size="13">'
        f'<rect width="620" height="{height}" fill="white"/>{legend}{"".join(rows)}</svg>\n'
    )
    Path(__file__).with_suffix(".svg").write_text(text)


if __name__ == "__main__":
    main()
