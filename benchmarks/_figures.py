"""Which of a benchmark's numbers people ask for: one list, for the page of the documentation and for what moved.

A figure is a path into `results/NAME.json` (a list is entered at its last element, `*` stands for every key). A ratio
is against the floor or peer that ran beside it, so it says the same on every machine; seconds say what they say of the
machine in the file's provenance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"

#: Above this load average, or from a commit with changes of its own, a result is no word to rely on.
QUIET = 2.0


@dataclass(frozen=True)
class Figure:
    benchmark: str
    what: str
    path: tuple[str, ...]
    unit: str = ""
    less_is_better: bool = True


def _ratio(benchmark: str, what: str, *path: str) -> Figure:
    return Figure(benchmark, what, path, "x")


FIGURES = (
    Figure("policies", "CPU seconds of one round, most jobs tried", ("policies", "*", "rows", "round_s"), "s"),
    Figure("policies", "exponent of its growth", ("policies", "*", "exponent")),
    Figure("full_round", "whole round of 10,000 jobs on 10,000 GPUs", ("policies", "*", "whole_cpu_s"), "s"),
    Figure("full_round", "of that the certificate", ("policies", "*", "certificate_cpu_s"), "s"),
    Figure("oef_cooperative", "exponent of growth in tenants", ("growth_exponent_in_n",)),
    Figure("afs_tree", "10,000 GPUs among 10,000 jobs", ("rows", "tree_s"), "s"),
    _ratio("gavel_finish_time", "our bisection over the paper's program on bare HiGHS", "rows", "ratio"),
    _ratio("themis_auction", "the arbiter's part over the paper's wall time", "ratio_arbiter", "*"),
    _ratio("journal_append", "a journal's append over bare SQLite", "ways", "*", "bare_over_journal"),
    Figure("arbiter_idle", "an idle arbiter of 1,000 jobs, of one core", ("idle", "cpu_percent_of_one_core"), "%"),
    _ratio("cli_startup", "start over `python -c pass`", "commands", "*", "ratio"),
    _ratio("status_large", "`horae status` of 10,000 jobs over a bare read", "commands", "*", "ratio"),
    _ratio("slurm_resize", "resize over the same commands by hand", "resize", "ratio_paired"),
    _ratio("slurm_resize", "16 resizes at once over the same by hand", "together", "ratio_paired"),
    _ratio("slurm_resize", "submission to running over plain Slurm", "arrival", "ratio"),
    _ratio("slurm_large", "10,000 jobs on 400 nodes, over bare requests", "ratio to bare, paired", "*", "seconds"),
    _ratio("slurm_release", "10,000 jobs handed back over a bare loop", "ratio to bare", "*"),
    _ratio("slurm_trace", "mean completion over backfill", "ratio horae to backfill", "jct_mean_s"),
    _ratio("slurm_trace", "largest rho over backfill", "ratio horae to backfill", "rho_max"),
    _ratio("yarn_resize", "resize over the same REST calls by hand", "one", "ratio", "*"),
    _ratio("yarn_resize", "two resizes at once", "together", "ratio", "*"),
    _ratio("yarn_start", "submission to first step over a plain service", "ratio", "*"),
    _ratio("yarn_trace", "mean completion over capacity scheduler", "ratio horae to capacity scheduler", "jct_mean_s"),
    _ratio("yarn_trace", "largest rho over capacity scheduler", "ratio horae to capacity scheduler", "rho_max"),
    _ratio("hdfs_checkpoint", "reading over plain requests", "read ratio to requests", "*"),
    _ratio("hdfs_checkpoint", "writing over plain requests", "write ratio to requests", "*"),
    Figure("local_resize", "resize over the same by hand, more by", ("overhead",)),
    Figure("simulator", "jobs/s, largest virtual cluster of Philly's log", ("largest", "*", "jobs_per_s"), "", False),
    Figure("simulator", "over so many of its jobs", ("largest", "*", "jobs"), "", False),
    Figure("simulator", "jobs/s, all eleven together", ("together", "*", "jobs_per_s"), "", False),
    Figure("simulator", "over so many jobs", ("together", "*", "jobs"), "", False),
    Figure("simulator", "memory for 1,000,000 jobs", ("million", "peak_megabytes"), "MB"),
    Figure("what_if", "CPU seconds of a site-year's history", ("cpu_s",), "s"),
    Figure("profiler_speed", "median of common forms", ("median_of_common_forms_mb_per_s",), "MB/s", False),
    _ratio("gpu_profiles", "time of a step over what the training noted", "rows", "*", "ratio"),
    Figure("profiler_score", "share right by the generic reader alone", ("generic", "share"), "", False),
    Figure("resized_loss", "largest difference of the loss", ("largest_loss_difference",)),
    Figure("root_size", "lines of ours in a process, root's and others", ("processes", "*", "ours", "lines")),
)  # fmt: skip


def within(value: Any, path: tuple[str, ...], name: str = "") -> Iterator[tuple[str, float]]:
    """(the keys that `*` stood for, number) of everything at `path`."""
    if isinstance(value, list):
        value = value[-1] if value else None
    if not path:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
        return
    if not isinstance(value, Mapping):
        return
    if path[0] != "*":
        yield from within(value.get(path[0]), path[1:], name)
        return
    for key, inner in value.items():
        yield from within(inner, path[1:], f"{name} {key}".strip())


def result(name: str) -> dict[str, Any]:
    """A benchmark's last result; empty where it was never kept."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def numbers(result: Mapping[str, Any], benchmark: str) -> Iterator[tuple[Figure, str, float]]:
    for figure in FIGURES:
        if figure.benchmark == benchmark:
            for name, value in within(result, figure.path):
                yield figure, name, value


def doubt(result: Mapping[str, Any]) -> str:
    """Why its numbers are not to be relied on; empty: they are."""
    provenance = result.get("provenance", {})
    load = provenance.get("machine", {}).get("load")
    if str(provenance.get("commit", "")).endswith("-dirty"):
        return "measured with changes that are in no commit"
    if load is None:
        return "no word of the machine's load"
    return f"measured at a load of {load:g}" if load > QUIET else ""
