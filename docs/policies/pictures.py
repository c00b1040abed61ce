"""Draw one picture a policy from real decisions: `python docs/policies/pictures.py` writes docs/images/policies.

Each picture plays `example.yaml` for twelve rounds of five minutes, with work done at the measured rates and resizes
free of charge, so that pictures differ by the policy alone. A column is a round, a cell a GPU, a colour a tenant.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from policy import catalogue
from policy.decide import decide
from policy.model import Decision, Snapshot, Work
from policy.text.instance import read
from policy.throughput import Throughput

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "images" / "policies"
ROUNDS, QUANTUM_S = 12, 300.0
SHADES = {
    "ada": ["#1f5fa8", "#4c8bd0", "#8bb8e8"],
    "bo": ["#b3541e", "#e08e57"],
    "cy": ["#2e7d4f", "#58a878", "#9bd1b0"],
}
#: Options under which a round of the picture is a round of the policy.
OPTIONS = {"quantum": QUANTUM_S, "lease": QUANTUM_S, "unit": 2 * QUANTUM_S}


def play(policy: str) -> list[Decision]:
    """The decisions of twelve rounds."""
    snapshot: Snapshot = replace(read(str(HERE / "example.yaml")), now_s=60.0)
    speeds = Throughput(snapshot.cluster)
    known = {o.name for o in catalogue.find(policy).options}
    options = {name: value for name, value in OPTIONS.items() if name in known}
    out: list[Decision] = []
    for _ in range(ROUNDS):
        decision = decide(snapshot, policy, options)
        out.append(decision)
        jobs = []
        for job in snapshot.jobs:
            place, attained = decision.allocation[job.name], dict(job.attained)
            for t, n in speeds.by_type(place).items():
                attained[t] = attained.get(t, 0.0) + n * QUANTUM_S
            total = job.work.total or 0.0
            done = min(job.work.done + (speeds.rate(job, place) or 0.0) * QUANTUM_S, total)
            kept = place if done < total else {}
            leases = decision.leases.get(job.name, {}) if kept else {}
            jobs.append(replace(job, work=Work(total, done), attained=attained, allocation=kept, lease_until=leases))
        snapshot = replace(snapshot, jobs=tuple(jobs), state=decision.state, now_s=snapshot.now_s + QUANTUM_S)
    return out


def draw(policy: str, decisions: list[Decision]) -> str:
    """An SVG: nodes as bands of cells, one column a round."""
    snapshot = read(str(HERE / "example.yaml"))
    width, height, left, top = 46, 16, 46, 26
    colours, of = {}, {}
    for tenant, shades in SHADES.items():
        for job, shade in zip([j for j in snapshot.jobs if j.tenant == tenant], shades, strict=True):
            colours[job.name], of[job.name] = shade, tenant
    rows = [(n.name, i) for n in snapshot.cluster.nodes for i in range(n.gpus)]
    total_w, total_h = left + ROUNDS * width + 10, top + len(rows) * height + 3 * 8 + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_w} {total_h}"',
        ' font-family="sans-serif" font-size="10">',
        f'<rect width="{total_w}" height="{total_h}" fill="#fff"/>',
        f'<text x="{left}" y="14" font-size="12" fill="#333">{policy}: who holds which GPU, rounds of 5 min</text>',
    ]
    y, tops = top, {}
    for node in snapshot.cluster.nodes:
        tops[node.name] = y
        out.append(f'<text x="4" y="{y + 2 * height + 4}" fill="#333">{node.name}</text>')
        out.append(f'<text x="4" y="{y + 3 * height + 2}" fill="#888" font-size="8">{node.gpu_type}</text>')
        y += node.gpus * height + 8
    for column, decision in enumerate(decisions):
        for node in snapshot.cluster.nodes:
            x, at = left + column * width, tops[node.name]
            out.append(f'<rect x="{x}" y="{at}" width="{width - 2}" height="{node.gpus * height - 1}" fill="#eee"/>')
            for job in sorted(decision.allocation):
                n = decision.allocation[job].get(node.name, 0)
                if n:
                    h = n * height - 1
                    out.append(f'<rect x="{x}" y="{at}" width="{width - 2}" height="{h}" fill="{colours[job]}"/>')
                    out.append(f'<text x="{x + 4}" y="{at + h / 2 + 4:g}" fill="#fff">{job}</text>')
                    at += n * height
    legend = "  ".join(f"{t} (weight {x.weight:g})" for t, x in ((t.name, t) for t in snapshot.tenants))
    out.append(f'<text x="{left}" y="{y + 12}" fill="#555">blue, orange, green: {legend}; grey: idle</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> int:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in catalogue.entries():
        (IMAGES / f"{name}.svg").write_text(draw(name, play(name)))
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
