"""Name -> policy. A package under `policy/` that has an `entries.py` is in the catalogue: no list to keep by hand.

Only the `entries` modules are imported for a listing; a policy's own module is imported when it first decides.
"""

from __future__ import annotations

import difflib
import pkgutil
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import policy
from policy.contract import Entry, Policy
from policy.model import BadInput


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Every policy by name, sorted."""
    found: dict[str, Entry] = {}
    for module in pkgutil.iter_modules(policy.__path__):
        name = f"policy.{module.name}.entries"
        if module.ispkg and find_spec(name) is not None:
            for entry in import_module(name).ENTRIES:
                if entry.name in found:
                    raise RuntimeError(f"two policies are called {entry.name}")
                found[entry.name] = entry
    return dict(sorted(found.items()))


def find(name: str) -> Entry:
    """The policy of this name. Raises BadInput listing the names."""
    known = entries()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(
            f"no policy {name!r}", field="policy.name", value=name, remedy=f"{hint}one of {', '.join(known)}"
        )
    return known[name]


def load(entry: Entry) -> Policy:
    """The policy's function."""
    function: Policy = load_call(entry.call)
    return function


def load_call(call: str) -> Any:
    """What "package.module:function" names."""
    module, _, name = call.partition(":")
    return getattr(import_module(module), name)
