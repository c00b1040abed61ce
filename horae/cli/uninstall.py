"""`horae uninstall KIND` (see install.py)."""

from horae.cli.install import uninstall
from horae.cli.options import example

SETTINGS = {"epilog": example("horae uninstall slurm --yes")}

__all__ = ["SETTINGS", "uninstall"]
