"""How many jobs train for how many iterations: phases of early stopping."""

from __future__ import annotations

from policy.model import Phase


def successive_halving(jobs: int, iterations: float, eta: int = 2) -> tuple[Phase, ...]:
    """`jobs` train for `iterations`; the best 1/eta go on for eta times as long, until one is left (§4.3.2).

    So every phase costs about the same. Raises ValueError for fewer than one job or an eta below 2.
    """
    if jobs < 1 or eta < 2 or iterations <= 0:
        raise ValueError("successive halving needs a job, iterations, and an eta of 2 or more")
    out = [Phase(jobs, iterations)]
    while out[-1].jobs > 1:
        out.append(Phase(max(out[-1].jobs // eta, 1), out[-1].iterations * eta))
    return tuple(out)


def hyperband(most_iterations: int, eta: int = 3) -> tuple[tuple[Phase, ...], ...]:
    """The brackets of Hyperband (Li et al., JMLR 2018, Algorithm 1), the most exploring first.

    Bracket s starts n = ceil((s_max + 1) / (s + 1) * eta**s) jobs with most_iterations / eta**s iterations each; the
    best 1/eta go on, each time until eta times as many *in all*. Phases hold what each adds.
    """
    if most_iterations < 1 or eta < 2:
        raise ValueError("Hyperband needs iterations, and an eta of 2 or more")
    deepest = 0
    while eta ** (deepest + 1) <= most_iterations:
        deepest += 1
    brackets = []
    for s in range(deepest, -1, -1):
        jobs = -(-(deepest + 1) * eta**s // (s + 1))
        reached, phases = 0.0, []
        for i in range(s + 1):
            upto = most_iterations / eta ** (s - i)
            phases.append(Phase(max(jobs // eta**i, 1), upto - reached))
            reached = upto
        brackets.append(tuple(phases))
    return tuple(brackets)
