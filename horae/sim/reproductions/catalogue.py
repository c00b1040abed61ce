"""Which figures and tables can be reproduced, and what comes of one."""

from __future__ import annotations

import difflib
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policy.model import BadInput, Seconds

#: Modules with `REPRODUCTIONS`, one a paper.
ROOMS = ("afs", "afs_elastic", "gandiva_fair", "oef", "oef_shares", "oef_times", "themis", "themis_sweeps")
MODULES = tuple(f"horae.sim.reproductions.{room}" for room in ROOMS)


@dataclass(frozen=True, slots=True)
class Found:
    """What a reproduction found. `paper` and `here` have the same keys; None: the paper shows it as a picture only."""

    inputs: dict[str, Any]
    paper: dict[str, Any]
    here: dict[str, Any]
    verdict: str  #: reproduced, close, differs
    why: str = ""  #: one sentence, needed unless it is reproduced


@dataclass(frozen=True, slots=True)
class Reproduction:
    name: str
    paper: str
    what: str  #: one sentence
    seconds: Seconds  #: about as long as it takes
    run: Callable[[int], Found]  #: by the seed


def every() -> dict[str, Reproduction]:
    """All, by name."""
    found = [one for module in MODULES for one in importlib.import_module(module).REPRODUCTIONS]
    return {one.name: one for one in sorted(found, key=lambda r: r.name)}


def find(name: str) -> Reproduction:
    """Raises BadInput, with the names."""
    known = every()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise BadInput("is no reproduction", field="NAME", value=name, remedy=f"{hint}one of {', '.join(known)}")
    return known[name]


def reproduce(name: str, seed: int = 0) -> dict[str, Any]:
    """One, as `horae reproduce NAME --json` prints it. Raises BadInput."""
    one, started = find(name), time.perf_counter()
    found = one.run(seed)
    return {
        "name": name,
        "inputs": found.inputs,
        "paper": found.paper,
        "here": found.here,
        "verdict": found.verdict,
        "why": found.why,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 3),
    }
