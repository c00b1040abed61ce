"""Random allocations on three nodes."""

from __future__ import annotations

from hypothesis import strategies as st

NODES = {"a": 4, "b": 4, "c": 2}


def allocations(draw: st.DrawFn, names: list[str]) -> dict[str, dict[str, int]]:
    """Allocations that fit together."""
    free = dict(NODES)
    out: dict[str, dict[str, int]] = {}
    for name in names:
        out[name] = {}
        for node in sorted(free):
            gpus = draw(st.integers(0, free[node]), label=f"{name} on {node}")
            if gpus and draw(st.booleans(), label="takes"):
                out[name][node] = gpus
                free[node] -= gpus
    return out
