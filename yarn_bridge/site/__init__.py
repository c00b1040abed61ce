"""The site side of YARN: what `horae install|uninstall yarn` changes, and what `horae doctor` proves."""

from __future__ import annotations

from collections.abc import Mapping

from horae.sites import Change
from yarn_bridge.site.doctor import checks
from yarn_bridge.site.install import opened, planned
from yarn_bridge.site.scheduler_conf import SchedulerConf

__all__ = ["YarnSite", "checks"]


class YarnSite:
    def changes(self, options: Mapping[str, str]) -> tuple[list[Change], list[str]]:
        return planned(options)

    def place(self, name: str) -> SchedulerConf:
        return opened(name)
