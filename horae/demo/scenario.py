"""What the demo plays: a small cluster of two GPU types, three tenants, and jobs that come over time.

Each job is a real training run of `horae.demo.trainers` on handwritten digits. How long a step takes on a "GPU" is
emulated (the trainers sleep the rest), so that twelve GPUs fit on a laptop; everything else is as it is anywhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from policy.model import Seconds

#: Debian's Python is where Debian's PyTorch is.
SYSTEM_PYTHON = "/usr/bin/python3"
#: The demo's time at `--seconds 90`; other lengths scale arrivals and work with it.
USUAL_S = 90.0
BATCH = 64


class Framework(StrEnum):
    NUMPY = "numpy"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: Seconds
    name: str
    tenant: str
    gpus: dict[str, Any] | int
    seconds: Seconds  #: of work on one GPU of speed 1
    hidden: int = 64
    rate: float = 0.05
    sample_ms: float = 4.0

    @property
    def steps(self) -> int:
        return max(round(self.seconds * 1e3 / (BATCH * self.sample_ms)), 20)


@dataclass(frozen=True, slots=True)
class HyperbandSweep:
    """A hyperparameter search by Hyperband: four trials of which one goes on, and two that run to the end."""

    at_s: Seconds
    name: str
    tenant: str
    sample_ms: float
    iterations: int = 15
    eta: int = 4
    hidden: int = 16


@dataclass(frozen=True, slots=True)
class Scenario:
    nodes: str  #: as the local cluster's options read it
    speeds: Mapping[str, float]
    tenants: Mapping[str, float]  #: name -> weight
    arrivals: tuple[Arrival, ...]
    sweep: HyperbandSweep


SWEEP = HyperbandSweep(10.0, "tune", "speech", 12.0)
ARRIVALS = (
    Arrival(0.0, "mlp-128", "vision", {"min": 1, "max": 8}, 95, hidden=128),
    Arrival(1.0, "softmax", "speech", {"min": 1, "max": 4}, 55, hidden=0, rate=0.03),
    Arrival(7.0, "mlp-32", "nlp", {"min": 1, "max": 4}, 70, hidden=32),
    Arrival(14.0, "mlp-256", "vision", {"allowed": [2, 4]}, 60, hidden=256, rate=0.03),
    Arrival(20.0, "mlp-48", "speech", {"min": 1, "max": 6}, 60, hidden=48),
    Arrival(26.0, "probe", "nlp", 1, 12, hidden=16),
    Arrival(32.0, "mlp-96", "nlp", {"min": 2, "max": 4}, 40, hidden=96),
)


def scenario(seconds: Seconds) -> Scenario:
    """The usual play, stretched or squeezed to end within `seconds`."""
    scale = seconds / USUAL_S
    arrivals = tuple(
        Arrival(a.at_s * scale, a.name, a.tenant, a.gpus, a.seconds * scale, a.hidden, a.rate, a.sample_ms)
        for a in ARRIVALS
    )
    return Scenario(
        "v100:2x4,k80:2x2",
        {"v100": 1.0, "k80": 0.5},
        {"vision": 2.0, "speech": 1.0, "nlp": 1.0},
        arrivals,
        replace(SWEEP, at_s=SWEEP.at_s * scale, sample_ms=SWEEP.sample_ms * scale),
    )


def fitted(play: Scenario, gpus: int) -> Scenario:
    """The same play for a cluster of so many GPUs: nobody asks for more than there are."""
    return replace(play, arrivals=tuple(replace(a, gpus=_at_most(a.gpus, gpus)) for a in play.arrivals))


def _at_most(wanted: dict[str, Any] | int, gpus: int) -> dict[str, Any] | int:
    if isinstance(wanted, int):
        return min(wanted, gpus)
    if "allowed" in wanted:
        return {"allowed": [n for n in wanted["allowed"] if n <= gpus] or [gpus]}
    return {"min": min(wanted["min"], gpus), "max": min(wanted["max"], gpus)}


def command(arrival: Arrival, framework: Framework) -> list[str]:
    """The trainer's command line."""
    return _trainer(framework, arrival.steps, arrival.hidden, str(arrival.rate), arrival.sample_ms)


def _trainer(framework: Framework, steps: int, hidden: int, rate: str, sample_ms: float) -> list[str]:
    module = "horae.demo.trainers.mlp" if framework is Framework.NUMPY else "horae.demo.trainers.torch_mlp"
    words = [
        *("--steps", str(steps), "--global-batch", str(BATCH), "--hidden", str(hidden)),
        *("--rate", rate, "--sample-ms", str(sample_ms), "--log-every-s", "0.3"),
    ]
    if framework is Framework.NUMPY:
        return [sys.executable, "-m", module, *words]
    from horae.demo.trainers import digits

    return [torch_python() or SYSTEM_PYTHON, "-m", module, *words, "--data", str(digits.locate())]


def environment(framework: Framework) -> dict[str, str]:
    """Variables that the trainers need: one thread a rank, and for a foreign Python the way to our packages."""
    import horae

    variables = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if framework is Framework.TORCH:
        variables["PYTHONPATH"] = str(Path(horae.__file__).parents[1])
    return variables


def torch_python() -> str | None:
    """The interpreter that has PyTorch: ours, else the system's; None if neither."""
    for python in (sys.executable, SYSTEM_PYTHON):
        if shutil.which(python) is None:
            continue
        probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if subprocess.run([python, "-c", probe], check=False, capture_output=True, cwd="/").returncode == 0:
            return python
    return None


def as_body(arrival: Arrival, framework: Framework, checkpoints: Path) -> dict[str, Any]:
    """What is handed to the API."""
    return {
        "name": arrival.name,
        "tenant": arrival.tenant,
        "command": command(arrival, framework),
        "gpus": arrival.gpus,
        "checkpoint": str(checkpoints / arrival.name),
        "iterations": arrival.steps,
        "model": arrival.name,
        "env": environment(framework),
        "grace_s": 20.0,
        "retries": 3,
    }


def sweep_file(sweep: HyperbandSweep, framework: Framework, checkpoints: Path) -> dict[str, Any]:
    """What `horae submit --sweep` reads."""
    return {
        "name": sweep.name,
        "tenant": sweep.tenant,
        "command": _trainer(framework, sweep.iterations, sweep.hidden, "{rate}", sweep.sample_ms),
        "gpus": 1,
        "parameters": {"rate": {"low": 0.001, "high": 0.3, "log": True}},
        "seed": 1,
        "scheduler": {"kind": "hyperband", "iterations": sweep.iterations, "eta": sweep.eta},
        "checkpoint": f"{checkpoints}/{{job}}",
        "env": environment(framework),
    }
