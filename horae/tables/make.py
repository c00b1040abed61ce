"""Make the shipped throughput tables from their sources: `python -m horae.tables.make SOURCES`.

SOURCES holds `gavel/simulation_throughputs.json.gz` (MIT), `afs/afs_model_iteration_times_us.json` (MIT) and
`pollux/*_placements.csv.gz` (Apache-2.0); where they come from is in `SOURCES.tsv` beside this file. Each table becomes
one JSON file, {model: {gpu_type: {gpus: iterations/s}}}. Figures are carried over, rounded to six digits.
"""

from __future__ import annotations

import ast
import csv
import gzip
import itertools
import json
import re
import sys
from pathlib import Path

Table = dict[str, dict[str, dict[int, float]]]

#: Pollux' tables are by local batch size; these are the global batch sizes that its traces begin with.
POLLUX_BATCH = {"bert": 12, "cifar10": 128, "deepspeech2": 20, "imagenet": 200, "ncf": 256, "yolov3": 8}


def key_of(model: str) -> str:
    """`ResNet-50 (batch size 64)` -> `resnet50-64`."""
    name, _, rest = model.partition(" (")
    batch = re.sub(r"\D", "", rest)
    return re.sub(r"[^a-z0-9]", "", name.lower()) + (f"-{batch}" if batch else "")


def gavel(source: Path) -> Table:
    data = json.loads(gzip.decompress((source / "gavel/simulation_throughputs.json.gz").read_bytes()))
    out: Table = {}
    for gpu_type in ("k80", "p100", "v100"):
        for entry, rates in data[gpu_type].items():
            model, gpus = ast.literal_eval(entry)
            if rates["null"] > 0:
                out.setdefault(key_of(model), {}).setdefault(gpu_type, {})[gpus] = _short(rates["null"])
    return _with_plain_names(out)


def afs(source: Path) -> Table:
    data = json.loads((source / "afs/afs_model_iteration_times_us.json").read_text())
    out: Table = {}
    for name, row in data.items():
        found = re.fullmatch(r"([A-Za-z0-9]+?)Model(\d+)", name)
        key = f"{found[1].lower()}-{found[2]}" if found else name.lower()
        times = row["us_per_iter_by_num_gpus"]
        out[key] = {"gtx1080": {n: _short(1e6 / t) for n, t in enumerate(times, 1) if t > 0}}
    return _with_plain_names(out)


def pollux(source: Path) -> Table:
    out: Table = {}
    for model, batch in POLLUX_BATCH.items():
        text = gzip.decompress((source / f"pollux/{model}_placements.csv.gz").read_bytes()).decode()
        by_place: dict[str, list[tuple[float, float]]] = {}
        for row in csv.DictReader(text.splitlines()):
            by_place.setdefault(row["placement"], []).append((float(row["local_bsz"]), float(row["step_time"])))
        curve: dict[int, float] = {}
        for place, points in by_place.items():
            gpus = sum(map(int, place))
            # Best placement on nodes of four: full nodes. The local batch must have been measured, or lie between.
            if len(place) == -(-gpus // 4) and (gpus <= 4 or gpus % 4 == 0):
                seconds = _between(sorted(points), batch / gpus)
                if seconds is not None:
                    curve[gpus] = _short(1 / seconds)
        if curve:
            out[f"{model}-{batch}"] = {"t4": dict(sorted(curve.items()))}
    return _with_plain_names(out)


def _between(points: list[tuple[float, float]], at: float) -> float | None:
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 <= at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0) if x1 > x0 else y0
    return None


def _with_plain_names(table: Table) -> Table:
    """`resnet50` is the smallest batch size of its family that was measured on most GPU types and counts."""
    families: dict[str, list[str]] = {}
    for key in table:
        families.setdefault(key.rpartition("-")[0] or key, []).append(key)

    def measured(key: str) -> tuple[int, int]:
        batch_size = int(key.rpartition("-")[2])
        return sum(map(len, table[key].values())), -batch_size

    for plain, keys in families.items():
        if plain not in table:
            table[plain] = table[max(keys, key=measured)]
    return dict(sorted(table.items()))


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    for name, made in (("gavel", gavel), ("afs", afs), ("pollux", pollux)):
        table = made(Path(arguments[0]))
        lines = ",\n".join(f" {json.dumps(model)}: {json.dumps(rates)}" for model, rates in table.items())
        (Path(__file__).parent / f"{name}.json").write_text("{\n" + lines + "\n}\n")
        print(f"{name}: {len(table)} models")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
