"""How often is a number right that is told with a confidence? Counts it, and writes the table of `profiler.evidence`.

    python -m tests.profiler.reliability LOGDIR [--write] [--plot FILE.png]

Counted are the labelled logs with the rules of each log's own family switched off, then with all rules off, and the
excerpts with all rules off and on: most of them as a reader meets them that does not know the format. Numbers that
were left out for want of confidence are read too: else the table could only ever confirm itself.
Those logs are what the readers were mended for, so a field's shares are made less by what it lost when halves were read
that no reader had been changed for (`first_told.json`).
What was said of the newest logs, and how much of it was right, before any reader was changed for them stands in the
same file; the plot and the printed lines show it apart.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from profiler import evidence
from tests.profiler import others, score

TABLE = Path(evidence.__file__).with_name("evidence.yaml")
FEWEST = 12  #: numbers of a field and ground from which their share counts; below it is the ground's over all fields
FIELDS = (
    *("iterations.last", "epochs.last", "iteration_time.median", "epoch_time.median", "throughput.median", "loss.last"),
    *("accuracy.last", "validation.loss.last", "validation.accuracy.last", "failure.kind"),
)

_FIRST_TOLD = json.loads(Path(__file__).with_name("first_told.json").read_text(encoding="utf-8"))
#: What was right of numbers told of logs that no reader had been changed for: [right, told] by field.
FIRST: dict[str, list[int]] = _FIRST_TOLD["fields"]
#: The newest of them: (bin, numbers, mean confidence, share of right ones).
NEWEST: list[tuple[str, int, float, float]] = [(n, many, said, found) for n, many, said, found in _FIRST_TOLD["newest"]]
#: (field, ground, confidence, right)
Told = tuple[str, str, float, bool]


def _of(run: Any, name: str) -> tuple[Any, bool]:
    """The value of a field in a label or an answer, and whether the label speaks of it at all."""
    value, keys = run, name.split(".")
    for at, key in enumerate(keys):
        if isinstance(value, dict) and "any" in value and key not in value:
            rest = ".".join(keys[at:])
            told = [_of(v, rest) if isinstance(v, dict) else (v, True) for v in value["any"]]
            return {"any": [v if spoken else "*" for v, spoken in told]}, True  # a way that leaves it open allows all
        if not isinstance(value, dict):
            return None, value is None and name.partition(".")[0] in run
        if key not in value:
            return None, False
        value = value[key]
    return value, True


def right(name: str, want: Any, got: Any) -> bool:
    last = name.rpartition(".")[2]
    if last == "last" and isinstance(got, list):
        got = got[1]
    if isinstance(want, dict) and "any" in want:
        return any(right(name, w, got) for w in want["any"])
    if isinstance(want, dict) and "value" in want:
        want = want["value"]
    if isinstance(want, list):
        want = want[1]
    return want == "*" or score.matches(want, got, {"median": "median", "last": "value"}.get(last, ""))


def counted(labels: list[dict[str, Any]], runs: list[Any], whole: bool) -> Iterator[Told]:
    """Every number that an answer tells and a label judges. `whole`: what the label leaves out is not there."""
    if not labels:
        for run in runs:  # of text that is no training nothing is right
            yield from ((name, told.ground.value, told.confidence, False) for name, told in run.evidence.items())
    if len(labels) != len(runs):
        return  # the runs cannot be put side by side
    for want, run in zip(labels, runs, strict=True):
        got = run.to_json()
        for name, told in run.evidence.items():
            value, spoken = _of(want, name)
            if not spoken and not whole:
                continue
            yield name, told.ground.value, told.confidence, right(name, value, _of(got, name)[0])


def everything(logs: Path) -> Iterator[Told]:
    for mode in ("family", "generic"):
        for path in sorted(score.LABELS.glob("*.yaml")):
            label = yaml.safe_load(path.read_text(encoding="utf-8"))
            runs = score.summaries(logs / path.name.removesuffix(".yaml"), mode, label)
            yield from counted(label["runs"], runs, whole=True)
    for path in others.SETS.values():
        for entry in others.labelled(path):
            for generic in (False, True):
                yield from counted(entry["runs"], others.summaries(entry["log"], generic=generic), whole=False)


def table(told: list[Told]) -> dict[str, dict[str, float]]:
    """Shares of right ones, with half a right and one and a half wrong added: what was seen twice is not sure; less
    what such a field loses on logs that no reader was mended for."""
    made: dict[str, dict[str, float]] = {}
    for field in ("any", *FIELDS):
        by_ground: dict[str, list[bool]] = defaultdict(list)
        for name, ground, _, ok in told:
            if field in ("any", name):
                by_ground[ground].append(ok)
        made[field] = {
            ground: round((sum(oks) + 0.5) / (len(oks) + 2) * _lost(field, told), 3)
            for ground, oks in sorted(by_ground.items())
            if len(oks) >= (1 if field == "any" else FEWEST)
        }
    return {field: grounds for field, grounds in made.items() if grounds}


def _lost(field: str, told: list[Told]) -> float:
    """What the share of right numbers of a field is to be multiplied with for a log that no reader was mended for."""
    right, seen = FIRST[field if FIRST.get(field, [0, 0])[1] >= FEWEST else "any"]
    here = [ok for name, _, _, ok in told if field in ("any", name)]
    return min(1.0, (right + 0.5) / (seen + 1) / (sum(here) / len(here)))


def bins(told: list[Told]) -> list[tuple[str, int, float, float]]:
    """(bin, numbers, mean confidence, share of right ones)."""
    edges = (0.0, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 1.01)
    rows = []
    for low, high in pairwise(edges):
        inside = [(c, ok) for _, _, c, ok in told if low <= c < high]
        if inside:
            mean = sum(c for c, _ in inside) / len(inside)
            rows.append((f"{low:g} to {min(high, 1):g}", len(inside), mean, sum(ok for _, ok in inside) / len(inside)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.profiler.reliability", description="confidence held to account"
    )
    parser.add_argument("logs", type=Path)
    parser.add_argument("--write", action="store_true", help="write the table that the profiler uses")
    parser.add_argument("--plot", type=Path, help="draw said against found")
    options = parser.parse_args()
    evidence.THRESHOLD = 0.0
    told = list(everything(options.logs))
    made = table(told)
    told = [(name, ground, made.get(name, {}).get(ground, made["any"][ground]), ok) for name, ground, _, ok in told]
    if options.write:
        head = (
            "# Shares of right numbers by field and ground, by `python -m tests.profiler.reliability LOGDIR --write`.\n"
        )
        TABLE.write_text(head + yaml.safe_dump(made, sort_keys=False), encoding="utf-8")
        print(f"{TABLE}: {len(told)} numbers counted")
    shown = {"counted in the table": bins(told), "the newest, as first read": NEWEST}
    for title, rows in shown.items():
        print(title)
        for name, n, said, found in rows:
            print(f"  {name:14} {n:5} numbers, said {said:.3f}, right {found:.3f}")
    if options.plot:
        draw(shown, options.plot)
    return 0


def draw(shown: dict[str, list[tuple[str, int, float, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0.5, 1], [0.5, 1], color="0.7", lw=1)
    for marker, (title, rows) in zip("os", shown.items(), strict=False):
        sizes = [10 + 4 * n**0.5 for _, n, _, _ in rows]
        axes.scatter([r[2] for r in rows], [r[3] for r in rows], sizes, marker=marker, label=title, alpha=0.7)
    axes.set(xlabel="confidence told", ylabel="share that is right", xlim=(0.5, 1.01), ylim=(0.3, 1.02))
    axes.legend(loc="lower right")
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
