"""`python path/to/elastic ...` is `horae-exec ...`, wherever this folder was copied to and whatever it is named."""

import importlib
import os
import sys

folder = os.path.dirname(os.path.abspath(__file__))
if not __package__:
    # Last, not first: what lies beside the folder must not hide the standard library.
    sys.path[:] = [entry for entry in sys.path if entry != folder] + [os.path.dirname(folder)]

command = importlib.import_module((__package__ or os.path.basename(folder)) + ".supervisor.command")
if __name__ == "__main__":
    raise SystemExit(command.main())
