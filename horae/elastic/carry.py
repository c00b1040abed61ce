"""`horae-exec` and the SDK as files for the nodes: nothing is installed there, any Python 3.7+ will do.

    python -m horae.elastic.carry FOLDER        on a path that nodes see; then FOLDER/bin/horae-exec

This folder and, of each launcher that is known here (`supervisor/launchers.py`), the package that its module is in,
with a table of their names. One folder, one archive: Python runs and imports either.

What was carried before stays as it is, in a folder of its own (`lib-...`, named by what stands in it): jobs that run
from there go on loading from there, and a job that begins meanwhile gets one or the other, never some of each. Folders
that no job runs from any more may be removed.
"""

import hashlib
import json
import os
import sys
from importlib.util import find_spec
from typing import Dict, Iterator, Mapping

from .files import write_atomic
from .supervisor import launchers

_MAIN = "from horae.elastic.supervisor.command import main\nraise SystemExit(main())\n"
_SCRIPT = """\
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}" PYTHONPATH="$here/@LIB@${PYTHONPATH:+:$PYTHONPATH}"
exec python3 "$here/@LIB@" "$@"  # by its path: `-m` would look for modules in the job's folder first
"""


def files() -> "Dict[str, str]":
    """Path -> text; the same for the same installation."""
    table = launchers.known()
    found = {"__main__.py": _MAIN}
    for package in ["horae.elastic", *sorted({module.rpartition(".")[0] or module for module in table.values()})]:
        for above in _above(package):
            found[above + "/__init__.py"] = ""  # what is there belongs to the arbiter, and stays
        found.update(_package(package))
    home = launchers.__name__.rpartition(".")[0].replace(".", "/")
    found["%s/%s" % (home, launchers.TABLE)] = json.dumps(table, sort_keys=True, indent=1) + "\n"
    return found


def _package(name: str) -> "Dict[str, str]":
    """The modules in it and below it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("no package %s, as entry points of %s say" % (name, launchers.GROUP), name=name)
    top = list(spec.submodule_search_locations)[0]
    paths = [os.path.join(root, each) for root, _folders, names in os.walk(top) for each in names]
    found = {}
    for path in sorted(path for path in paths if path.endswith(".py")):
        with open(path, encoding="utf-8") as file:
            found["%s/%s" % (name.replace(".", "/"), os.path.relpath(path, top))] = file.read()
    return found


def _above(package: str) -> "Iterator[str]":
    """The folders that it lies in."""
    parts = package.split(".")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def carry(folder: str) -> str:
    """Write it below `folder`; returns the command. Raises OSError."""
    found = files()
    lib = library(found)
    for name, text in found.items():
        _write(os.path.join(folder, lib, name), text)
    script = os.path.join(folder, "bin", "horae-exec")
    _write(script, _SCRIPT.replace("@LIB@", lib), 0o755)
    return script


def library(found: "Mapping[str, str]") -> str:
    """The folder of these files."""
    return "lib-" + hashlib.blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=6).hexdigest()


def _write(path: str, text: str, mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomic(path, text.encode(), mode=mode)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m horae.elastic.carry FOLDER")
    try:
        print(carry(sys.argv[1]))
    except OSError as trouble:
        sys.exit(str(trouble))
