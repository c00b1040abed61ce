"""Name -> policy. A package under `policy/` that has an `entries.py` is in the catalogue: no list to keep by hand.

Other packages bring theirs by an entry point of the group `horae.policies`, which names a module with `ENTRIES`. A file
(`policy/own_file.py`) is in it once somebody named it: a snapshot that came from elsewhere cannot have one run.
Only the `entries` modules are imported for a listing; a policy's own module is imported when it first decides.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import policy
from policy import own_file
from policy.contract import Bidding, Entry, Policy
from policy.model import BadInput


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Every policy by name, sorted."""
    found: dict[str, Entry] = {}
    for where, some in (*_own(), *_others()):
        for entry in some:
            if entry.name in found:
                raise BadInput(f"two policies are called {entry.name}", where=where, remedy="rename one of them")
            found[entry.name] = entry
    return dict(sorted(found.items()))


def is_own(entry: Entry) -> bool:
    """Whether it is one of Horae's, and not another package's."""
    return entry.call.startswith("policy.") and not own_file.is_file(entry.name)


_files: dict[str, own_file.OwnFile] = {}


def named(name: str, *, believed: bool = True) -> Entry:
    """As `find`; a file is read, and is in the catalogue from now on, by its absolute path. Only for what a person said
    on a command line or in an arbiter's configuration. Raises BadInput."""
    if own_file.is_file(name):
        path = Path(name).absolute()
        if str(path) not in _files:
            add(own_file.read(path, believed=believed))
        name = str(path)
    return find(name)


def add(file: own_file.OwnFile) -> None:
    """Raises BadInput for one that is no policy."""
    assert file.entry
    _files[file.name] = file


def file(name: str) -> own_file.OwnFile | None:
    """The file that a policy is in; None: it is in a package."""
    return _files.get(name)


def known(name: str) -> Entry | None:
    return _files[name].entry if name in _files else entries().get(name)


def _own() -> Iterator[tuple[str, Iterable[Entry]]]:
    for module in pkgutil.iter_modules(policy.__path__):
        name = f"policy.{module.name}.entries"
        if module.ispkg and find_spec(name) is not None:
            yield name, import_module(name).ENTRIES


def _others() -> Iterator[tuple[str, Iterable[Entry]]]:
    """Raises BadInput for a package whose policies cannot be listed: to leave them out would be to hide it."""
    for point in entry_points(group="horae.policies"):
        where = f"{point.dist.name if point.dist is not None else 'a package'}, entry point {point.name}"
        try:
            some = tuple(point.load().ENTRIES)
        except Exception as error:  # code of any origin
            raise BadInput(
                f"its policies cannot be listed: {type(error).__name__}: {error}",
                where=where,
                value=point.value,
                remedy="mend that package, or uninstall it",
            ) from error
        wrong = [each for each in some if not isinstance(each, Entry)]
        if wrong:
            raise BadInput(f"ENTRIES holds {type(wrong[0]).__name__}, not a policy.contract.Entry", where=where)
        yield where, some


def find(name: str) -> Entry:
    """The policy of this name. Raises BadInput listing the names."""
    entry = known(name)
    if entry is None and own_file.is_file(name):
        raise BadInput(
            "is a file, and runs only for whoever names it", field="policy.name", value=name, remedy=f"--policy {name}"
        )
    if entry is None:
        known_names = entries()
        near = difflib.get_close_matches(name, known_names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        for folder in map(Path, policy.__path__):
            if (folder / name / "entries.py").exists() and not (folder / name / "__init__.py").exists():
                hint = f"{folder / name} has no __init__.py; "
        raise BadInput(
            f"no policy {name!r}", field="policy.name", value=name, remedy=f"{hint}one of {', '.join(known_names)}"
        )
    return entry


def load(entry: Entry) -> Policy:
    """The policy's function."""
    if entry.name in _files:
        return _files[entry.name].function
    function: Policy = load_call(entry.call)
    return function


def bidding(name: str) -> Bidding | None:
    """How the policy of this name takes bids; None: it takes none, or there is no such policy."""
    entry = known(name)
    if entry is None or entry.bids is None:
        return None
    module: Any = import_module(entry.bids)
    found: Bidding = module
    return found


def load_call(call: str) -> Any:
    """What "package.module:function" names."""
    module, _, name = call.partition(":")
    return getattr(import_module(module), name)
