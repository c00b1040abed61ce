"""Logs that lie in a cluster and not in files: `KIND:WHAT`, as `yarn:application_1700000000000_0001`.

A kind is an entry point of the group `horae.logs`, named like the adapter: a callable
`open(options: Mapping[str, Any]) -> LogSource` over the options of a configuration's `cluster`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from horae import extras
from horae.sites import CONFIG
from policy.model import BadInput

GROUP = "horae.logs"
_NAME = re.compile(r"([a-z]+):(.+)")


@dataclass(frozen=True, slots=True)
class Log:
    """One log, or the next part of one that came before."""

    name: str  #: by which it can be asked for again
    pieces: Iterator[bytes]  #: to be read before the next log is asked for, or not at all
    aside: bool = False  #: of a process that seldom trains, such as an application master
    asked: bool = False  #: its file was named, not only its job


class LogSource(Protocol):
    @property
    def troubles(self) -> list[str]:
        """After the logs were gone through: what could not be read while the rest could, in words."""
        ...

    def logs(self, what: str) -> Iterator[Log]:
        """All that `what` (behind the colon) means. Raises BadInput and PortError where nothing can be read."""
        ...

    def close(self) -> None: ...


def named(name: str) -> tuple[str, str] | None:
    """Kind and what of a name, unless it is a file's or no kind is known by it."""
    found = _NAME.fullmatch(name)
    if found is None or Path(name).exists() or not list(entry_points(group=GROUP, name=found[1])):
        return None
    return found[1], found[2]


def source(kind: str, config: Path | None) -> LogSource:
    """Of the cluster that this configuration names, or the site's own. Raises BadInput."""
    from horae.config import load

    path = config or Path(CONFIG)
    if not path.exists():
        raise BadInput(
            "there is no such configuration" if config else "logs in a cluster need to know the cluster",
            where=str(path) if config else "", field="--config",
            remedy=f"a file with `cluster: {{adapter: {kind}, options: {{...}}}}`, by --config or $HORAE_CONFIG",
        )  # fmt: skip
    cluster = load(path).cluster
    if cluster.adapter != kind:
        raise BadInput(
            f"is of a cluster of the kind {cluster.adapter}", where=str(path), field="cluster.adapter",
            value=cluster.adapter, remedy=f"name the configuration of the {kind} cluster with --config",
        )  # fmt: skip
    (point,) = entry_points(group=GROUP, name=kind)
    try:
        opened = point.load()
    except ModuleNotFoundError as error:
        raise extras.missing(error, field="LOG", prefer=kind) from None
    found: LogSource = opened(cluster.options)
    return found
