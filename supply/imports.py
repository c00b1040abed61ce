"""`pyproject.toml` declares what the code imports, and nothing else, in the extra of the room that imports it.

    python -m supply.imports

Read from the source (`ast`), so that nothing needs to be installed. A package counts for the room of the file that
imports it; an import inside a function may be of the room's extras, one at the top of a file must be there whenever
the file is. What runs in a user's training environment (`horae/elastic/frameworks`, the demo's trainers) brings its
own packages, and `horae.extras` must know the distribution of every import name that differs from it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from horae.extras import DISTRIBUTIONS
from supply.locks import plain, wanted

TREE = Path(__file__).resolve().parent.parent
ROOMS = ("horae", "policy", "profiler", "slurm_plugin", "yarn_bridge")
#: folder -> extras beside the base; the longest that fits counts
EXTRAS: dict[str, tuple[str, ...]] = {
    "horae/tui/app.py": ("top",),
    "horae/demo": ("demo",),
    "horae/lab": ("lab",),
    "horae/sim/traces/parquet.py": ("parquet",),
    "horae/sim/pictures.py": ("plot",),
    "horae/sim/clusters.py": ("dask",),
    "profiler/runs/log_files.py": ("zstd",),
    "profiler/estimates/plot.py": ("plot",),
    "slurm_plugin": ("slurm", "pyslurm"),
    "slurm_plugin/lab": ("slurm", "lab"),
    "yarn_bridge": ("yarn", "kerberos"),
    "yarn_bridge/lab": ("yarn", "lab"),
}
#: imported by code that runs in the user's own environment, which has them or not
THEIRS = frozenset(
    {"fsspec", "jax", "keras", "lightning", "numpy", "pytorch-lightning", "tensorflow", "torch", "transformers"}
)
IN_TRAINING = ("horae/elastic/", "horae/demo/trainers/")
#: declared and never imported: found by name (the demo reads scikit-learn's data file)
BY_NAME = frozenset({"scikit-learn"})


@dataclass(frozen=True)
class Import:
    where: str
    line: int
    package: str
    at_top: bool


def imports(room: str) -> Iterator[Import]:
    """Imports of what is neither the standard library's nor ours."""
    for path in sorted((TREE / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        top = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            else:
                continue
            for name in {each.partition(".")[0] for each in names}:
                if name not in sys.stdlib_module_names and name not in ROOMS:
                    package = plain(DISTRIBUTIONS.get(name, name))
                    yield Import(str(path.relative_to(TREE)), node.lineno, package, id(node) in top)


def allowed(where: str) -> set[str]:
    fitting = [folder for folder in EXTRAS if where == folder or where.startswith(f"{folder}/")]
    return set(wanted(EXTRAS[max(fitting, key=len)] if fitting else ()))


def check() -> Iterator[str]:
    base, used = set(wanted(())), set()
    for room in ROOMS:
        for each in imports(room):
            used.add(each.package)
            if each.where.startswith(IN_TRAINING) and each.package in THEIRS:
                continue
            if each.package not in allowed(each.where):
                yield f"{each.where}:{each.line}: imports {each.package}, which pyproject.toml does not declare for it"
            elif each.at_top and each.package not in base and not each.where.startswith(tuple(EXTRAS)):
                yield f"{each.where}:{each.line}: {each.package} is of an extra: import it where it is used"
    every = {extra for extras in EXTRAS.values() for extra in extras}
    for package in sorted((base | set(wanted(sorted(every)))) - used - BY_NAME):
        yield f"pyproject.toml: {package} is declared, and nothing imports it"


def main() -> int:
    faults = list(check())
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
