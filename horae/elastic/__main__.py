"""`python path/to/elastic ...` is `horae-exec ...`, wherever this folder was copied to and whatever it is named."""

import importlib
import os
import sys
import typing  # noqa: F401  (before what lies beside the folder could hide it)


def _package() -> str:
    """The name of the package that this folder is, importable from here on."""
    folder = os.path.dirname(os.path.abspath(__file__))
    root, name = os.path.split(folder)
    if os.path.basename(root) == "horae" and os.path.exists(os.path.join(root, "__init__.py")):
        root, name = os.path.dirname(root), "horae." + name
    # First until it is loaded: it is this one's package, whatever else has its name. Then last: what lies beside the
    # folder must not hide the standard library.
    sys.path[:] = [root] + [entry for entry in sys.path if entry != folder]
    importlib.import_module(name)
    sys.path.append(sys.path.pop(0))
    return name


command = importlib.import_module((__package__ or _package()) + ".supervisor.command")
if __name__ == "__main__":
    raise SystemExit(command.main())
