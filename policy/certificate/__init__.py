"""The certificate: properties of a decision, measured from the snapshot by code that no policy uses.

What is measured, and how exactly, stands in `feasible.py` (capacity, gangs, work conservation), `finish.py` (rho) and
`fairness.py` (sharing incentive, envy, Pareto, the optimum). Nothing is clipped or taken from a theorem: where a
property fails on an instance, the number says so; what was too much work is named in `notes`.

Jobs whose curves, ranges and slowdowns are equal are one kind (`Throughput.kind`), and what holds for a kind is worked
out once; the values are those that each job by itself would give.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.certificate import fairness
from policy.certificate.feasible import idle_but_wanted, violations
from policy.certificate.finish import rho_by_app
from policy.certificate.holdings import Holdings
from policy.model import Allocation, Certificate, JobName, Provenance, Seconds, Share, Snapshot
from policy.throughput import Throughput

__all__ = ["certify", "violations"]


def certify(
    snapshot: Snapshot,
    allocation: Mapping[JobName, Allocation],
    shares: Mapping[JobName, Share] | None = None,
    speeds: Throughput | None = None,
    *,
    time_limit_s: Seconds | None = None,
    notes: tuple[str, ...] = (),
    possible: bool = False,
    holdings: Holdings | None = None,
) -> Certificate:
    """Measure `allocation`; fairness is judged on the fractional `shares` where a policy has them. `possible`: it was
    asked just now for `violations`, and has none. `holdings`: of this snapshot, where they are known already."""
    speeds = speeds or Throughput(snapshot.cluster)
    wrong = [] if possible else list(violations(snapshot, allocation))
    said = [*notes, *wrong[:5]]
    if len(wrong) > 5:
        said.append(f"and {len(wrong) - 5} more reasons why it cannot run")
    wanted = idle_but_wanted(snapshot, allocation, speeds)
    if wanted is not None:
        said.append(f"idle GPUs could hold {wanted[0]} with {wanted[1]}, which would be faster")
    rho, left_out = rho_by_app(snapshot, allocation, speeds)
    said += left_out
    fair = fairness.measure(snapshot, allocation, shares, speeds, time_limit_s, holdings)
    said += fair.notes
    said += _provenance(snapshot, allocation)
    return Certificate(
        feasible=not wrong,
        work_conserving=wanted is None,
        sharing_incentive=fair.sharing_incentive,
        envy=fair.envy,
        pareto=fair.pareto,
        rho=rho,
        throughput=fair.throughput,
        optimal_throughput=fair.optimal_throughput,
        notes=tuple(said),
    )


_WEAK = (Provenance.PRIOR, Provenance.FIT)


def _provenance(snapshot: Snapshot, allocation: Mapping[JobName, Allocation]) -> list[str]:
    """Numbers that rest on a prior or a fit are worth less: say how many."""
    types = {n.name: n.gpu_type for n in snapshot.cluster.nodes}
    weakly: dict[int, set[str]] = {}  #: types whose numbers are weak, of each table of sources: many jobs share one
    weak = unknown = 0
    for job in snapshot.jobs:
        now = allocation.get(job.name)
        if not now:
            continue
        if not job.throughput:
            unknown += 1
            continue
        sources = job.provenance
        of_types = weakly.get(id(sources))
        if of_types is None:
            of_types = weakly[id(sources)] = {t for t, source in sources.items() if source in _WEAK}
        if of_types and any(types.get(n, "") in of_types for n in now):
            weak += 1
    out = []
    if unknown:
        out.append(f"speed unknown for {unknown} running jobs: they count one per GPU")
    if weak:
        out.append(f"{weak} running jobs are measured by a fit or a prior, not by their own speed")
    return out
