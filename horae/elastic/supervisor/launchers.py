"""What a cluster runs beside the trainer, found by name: the half of an adapter that plugs itself into `horae-exec`.

A launcher is a module with `add_options(parser)` and `run(options)`, which returns the exit code. Its name says when it
is called: `--gate` where that option is given, `$SLURM_JOB_ID` where nothing else says how to run and that variable is
set. Which module a name stands for say the entry points of the group `horae.launchers`; in a copy, where nothing is
installed, a table beside this file (`carry.py` writes both).
"""

import importlib
import json
import os
import pkgutil
import sys
from types import ModuleType
from typing import Dict, Iterator, List, Mapping, Optional, Sequence

GROUP = "horae.launchers"
TABLE = "launchers.json"
#: What ends a folder of an installed package's description, and the file of its entry points.
_DESCRIPTION, _ENTRY_POINTS = ".dist-info", "entry_points.txt"


def by_option(words: Sequence[str]) -> Optional[ModuleType]:
    """Called by one of these words."""
    given = {word.partition("=")[0] for word in words}
    return next((_load(name, module) for name, module in sorted(known().items()) if name in given), None)


def by_environment(env: Mapping[str, str]) -> Optional[ModuleType]:
    for name, module in sorted(known().items()):
        if name[:1] == "$" and env.get(name[1:]):
            return _load(name, module)
    return None


def every() -> "List[ModuleType]":
    """Each module once, by how many names it may be called."""
    return [_load(name, module) for module, name in {module: name for name, module in sorted(known().items())}.items()]


def known() -> "Dict[str, str]":
    """Name -> module."""
    table = _table()
    return _installed() if table is None else table


def _table() -> "Optional[Dict[str, str]]":
    try:
        data = pkgutil.get_data(__name__, TABLE)
    except OSError:
        return None
    return None if data is None else json.loads(data.decode())


def _installed() -> "Dict[str, str]":
    """Not by `importlib.metadata`, which takes longer to import than all else that a supervisor needs, and which old
    Pythons have not. Of two that give a name the first on the path counts."""
    found: Dict[str, str] = {}
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for name in names:
            if name.endswith(_DESCRIPTION):
                for key, module in _entries(os.path.join(folder, name, _ENTRY_POINTS)):
                    found.setdefault(key, module)
    return found


def _entries(path: str) -> "Iterator[List[str]]":
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    ours = False
    for line in lines:
        if line.startswith("["):
            ours = line.strip() == "[%s]" % GROUP
        elif ours and "=" in line:
            yield [word.strip() for word in line.split("=", 1)]


def _load(name: str, module: str) -> ModuleType:
    """Raises ValueError where what is named is not there."""
    before = list(sys.path)
    if _table() is not None:
        sys.path.insert(0, _root())  # the one of this copy, whatever else on the path has its name
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError("%s is for %s, which cannot be loaded: %s" % (name, module, error)) from None
    finally:
        sys.path[:] = before


def _root() -> str:
    """The folder or archive in which this copy lies."""
    root = os.path.abspath(__file__)
    for _ in __name__.split("."):
        root = os.path.dirname(root)
    return root
