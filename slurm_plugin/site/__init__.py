"""The site side of Slurm: what `horae install|uninstall slurm` changes, and what `horae doctor` proves."""

from __future__ import annotations

from collections.abc import Mapping

from horae.sites import Change, Stay
from slurm_plugin.site.doctor import checks
from slurm_plugin.site.install import planned
from slurm_plugin.site.leaving import leaving

__all__ = ["SlurmSite", "checks"]


class SlurmSite:
    def changes(self, options: Mapping[str, str]) -> tuple[list[Change], list[str]]:
        return planned(options)

    def leaving(self, options: Mapping[str, str]) -> list[Stay]:
        return leaving(options)
