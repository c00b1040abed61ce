"""How much code runs as root where several users share one machine?

With `account` among the options of the local cluster three kinds of processes are root: the helper, for each job a
keeper (its supervisor and trainer are its owner's), and for a moment `horae serve`, until it has read its configuration
and become that account. Without, the arbiter and the process in which its policies run are root too. Counted are the
modules that each has loaded once it is ready, and their lines that are neither empty nor comments: ours, the standard
library's, others'.

    python benchmarks/root_size.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from benchmarks._record import record

ROOT = Path(__file__).resolve().parents[1]
DUMP = """
import json, sys
print(json.dumps([getattr(m, "__file__", None) or "" for m in list(sys.modules.values()) if m is not None]))
"""
ARBITER = """
import sys
from pathlib import Path
from horae.api.service import Service
from horae.cli import logs
from horae.config import parse
folder = Path(sys.argv[1])
service = Service(parse(f'''
state_dir: {folder}/state
cluster: {{adapter: local, options: {{state: {folder}/local, nodes: "v100:1x4"}}}}
pools: [{{name: main, policy: max-min, mode: enforce}}]
api: {{socket: {folder}/a.sock}}
'''))
service.start()
service.arbiter.ready.wait(60)
"""
WORKER = """
from horae.arbiter.decide import policy_worker
from policy.catalogue import find
import policy.decide
find("max-min")
"""
BEGINNING = """
from horae.cli import logs, serve
from horae.config import load
from horae.local.confine import confine
"""
HELPER = f"import sys\nsys.path.append({str(ROOT)!r})\nimport horae.local.helper"
KEEPER = f"import sys\nsys.path.append({str(ROOT / 'horae')!r})\nimport elastic.supervisor.command"
#: name -> program, and the interpreter's options
PROCESSES = {
    "helper": (HELPER, ["-I", "-S"]),
    "beginning": (BEGINNING, ["-P"]),
    "arbiter": (ARBITER, ["-P"]),
    "policies": (WORKER, ["-P"]),
    "keeper": (KEEPER, ["-I", "-S"]),
}


def lines(path: Path) -> int:
    return sum(1 for line in path.read_text(errors="replace").splitlines() if line.strip() and line.strip()[0] != "#")


def whose(path: Path) -> str:
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return "ours"
    library = Path(sysconfig.get_path("stdlib")).resolve()
    return "library" if path.is_relative_to(library) and "site-packages" not in path.parts else "others"


def loaded(program: str, options: list[str], folder: str) -> dict[str, dict[str, int]]:
    source = f"{program}\n{DUMP}\nsys.stdout.flush(); import os; os._exit(0)"
    done = subprocess.run([sys.executable, *options, "-c", source, folder], capture_output=True, text=True, check=True)
    found = {kind: {"modules": 0, "lines": 0, "binaries": 0} for kind in ("ours", "library", "others")}
    for name in {name for name in json.loads(done.stdout.splitlines()[-1]) if name}:
        row = found[whose(Path(name).resolve())]
        row["modules"] += 1
        if name.endswith(".py"):
            row["lines"] += lines(Path(name))
        else:
            row["binaries"] += 1
    return found


def main() -> None:
    rows = {}
    for name, (program, options) in PROCESSES.items():
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = loaded(program, options, folder)
        for kind, row in rows[name].items():
            print(f"{name:10}{kind:9}{row['modules']:5} modules {row['lines']:8} lines {row['binaries']:4} binaries")
    record(Path(__file__), {"processes": rows})


if __name__ == "__main__":
    main()
