"""What an installation lacks, or has in the wrong place.

What a plain one does not carry: which extra brings a missing package, and the command that installs it.

The base is what the command line, the SDK and the local cluster need. A cluster's adapter, the lab, the live picture
and some file forms need more: such packages are imported where they are used, and an import that fails is told here.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # and not otherwise: `displaced` is asked where there is no such module
    from policy.model import BadInput

#: import name -> distribution, where they differ otherwise than by case, "-" and "_"
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "PyYAML"}
#: extras that are for people who work on Horae itself, and so are no answer to a user
_OWN = frozenset({"dev"})
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_NAME = re.compile(r"[\w.-]+")


def missing(error: ModuleNotFoundError, *, field: str = "", prefer: str = "", or_else: str = "") -> BadInput:
    """A package that is not installed, as an error with the command that installs it.

    `prefer`: the extra to name where several bring it. `or_else`: what helps as well.
    """
    from policy.model import BadInput

    module = (error.name or "").partition(".")[0]
    return BadInput(
        f"this needs the Python package {module}, which is not installed",
        field=field,
        value=module,
        remedy=", or ".join(filter(None, (remedy(module, prefer), or_else))),
    )


def is_extra(error: BaseException) -> bool:
    """Whether the fault is a package that an extra of Horae brings."""
    return isinstance(error, ModuleNotFoundError) and bool(named(error.name or ""))


def remedy(module: str, prefer: str = "") -> str:
    found = named(module)
    if not found:
        return f"pip install {DISTRIBUTIONS.get(module, module)}"
    return f"pip install 'horae[{prefer if prefer in found else found[0]}]'"


def named(module: str) -> list[str]:
    """The extras that bring an imported module, in the order in which Horae declares them."""
    wanted = _plain(DISTRIBUTIONS.get(module.partition(".")[0], module.partition(".")[0]))
    found = []
    for declared in _declared():
        name, condition = _NAME.match(declared), _EXTRA.search(declared)
        if name is None or condition is None or condition[1] in _OWN:
            continue
        if _plain(name[0]) == wanted:
            found.append(condition[1])
    return found


def _declared() -> list[str]:
    try:
        return requires("horae") or []
    except PackageNotFoundError:  # copied, not installed
        return []


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


#: packages of ours whose names are bare ones among all that is installed
BARE = ("policy", "profiler")


def displaced() -> str:
    """What stands where Horae's own `policy` and `profiler` are to be, and what to do; "" where nothing does."""
    home = Path(__file__).resolve().parents[1]
    for name in BARE:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            return f"Horae's package {name} is not beside it in {home}: install horae again"
        found = Path(spec.origin).resolve()
        if found.parents[1] != home:
            return (
                f"{found.parent} stands before Horae's own package {name} in {home}: start Horae where no folder of "
                "that name is on the path (python -I leaves the working directory and PYTHONPATH out), or in a virtual "
                "environment of its own"
            )
    installed = packages_distributions()
    for name in BARE:
        others = sorted(set(installed.get(name, ())) - {"horae"})
        if others:
            return (
                f"the package {name} is brought by {', '.join(others)} too, and one has overwritten the other: install "
                "horae in a virtual environment of its own"
            )
    return ""
