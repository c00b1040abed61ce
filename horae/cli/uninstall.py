"""`horae uninstall KIND` (see install.py)."""

from horae.cli.install import uninstall

__all__ = ["uninstall"]
