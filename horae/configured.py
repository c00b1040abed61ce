"""What a configuration names: is there such an adapter, such a policy, and do they know the options they are given?

Nothing is asked of the cluster. An adapter's options are read by its entry point of the group `horae.options`: a
callable `check(options)` that raises `BadInput`. An adapter without one is asked only when it is connected.
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points

from horae import extras
from horae.config import ClusterForm, Config
from policy import catalogue
from policy.model import BadInput


def check(config: Config, where: str = "") -> None:
    """Everything that can be known without the cluster. Raises BadInput."""
    check_cluster(config.cluster, where)
    check_policies(config, where)


def check_cluster(cluster: ClusterForm, where: str = "") -> None:
    """Raises BadInput for an adapter that is not installed, and for options that it would refuse."""
    adapter(cluster, where)
    for point in entry_points(group="horae.options", name=cluster.adapter):
        try:
            point.load()(cluster.options)
        except ModuleNotFoundError as error:
            raise extras.missing(error, field="cluster.adapter", prefer=cluster.adapter) from error
        except BadInput as error:
            raise in_section(error, where, "cluster.options") from error


def check_policies(config: Config, where: str = "") -> None:
    """Raises BadInput for a pool whose policy nobody knows, and for options that it does not have."""
    for index, pool in enumerate(config.pools):
        try:
            entry = catalogue.named(pool.policy, believed=False)
        except BadInput as error:
            raise BadInput(
                error.message, where=where, field=f"pools[{index}].policy", value=pool.policy, remedy=error.remedy
            ) from error
        try:
            entry.resolve(pool.options)
        except BadInput as error:
            raise in_section(error, where, f"pools[{index}].options") from error


def adapter(cluster: ClusterForm, where: str = "") -> EntryPoint:
    """The entry point of the adapter that the configuration names. Raises BadInput."""
    known = {entry.name: entry for entry in entry_points(group="horae.clusters")}
    if cluster.adapter not in known:
        near = difflib.get_close_matches(cluster.adapter, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(
            f"no adapter {cluster.adapter!r} is installed",
            where=where,
            field="cluster.adapter",
            value=cluster.adapter,
            remedy=f"{hint}installed: {', '.join(sorted(known))}",
        )
    return known[cluster.adapter]


def in_section(error: BadInput, where: str, section: str) -> BadInput:
    """The same complaint, with the place in the configuration that it is about."""
    name = error.field.removeprefix("policy.options.")
    field = f"{section}.{name}" if name else section
    return BadInput(error.message, where=where, field=field, value=error.value, remedy=error.remedy)
