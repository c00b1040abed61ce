"""Whether the files of ours that the site's Slurm runs are this version's: an upgrade of the program leaves them.

An older Lua module goes on tagging and holding jobs as it did; what it does not know yet is taken for what a job did
not say. So it is told, and not refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from horae.doctor import Check, Verdict
from horae.port import PortError
from slurm_plugin.files.transport import Transport
from slurm_plugin.site.install import DEFAULTS, written

_TIMEOUT_S = 10.0
_REMEDY = "`horae install slurm`, with the words of the first time: it shows what would change, and --yes writes it"


def checks(transport: Transport, settings: Mapping[str, str], spool: str) -> list[Check]:
    """Nothing where none of them can be read: they may lie elsewhere, or the module is not used."""
    folder = folder_of(settings)
    found = {name: _read(transport, f"{folder}/{name}") for name in written(spool)}
    there = {name: text for name, text in found.items() if text is not None}
    if not there:
        return []
    other = sorted(name for name, text in there.items() if text != written(spool)[name])
    if other:
        text = f"{' and '.join(other)} in {folder} are another version's, or were edited"
        return [Check("site's files", Verdict.WARN, text, _REMEDY)]
    return [Check("site's files", Verdict.OK, f"{', '.join(sorted(there))} in {folder} are this version's")]


def folder_of(settings: Mapping[str, str]) -> str:
    """Where they lie: beside the epilog, where Slurm calls ours."""
    for name, value in settings.items():
        if name.startswith("EpilogSlurmctld") and PurePosixPath(value).name == "epilog.sh":
            return str(PurePosixPath(value).parent)
    return DEFAULTS["lua"]


def _read(transport: Transport, path: str) -> str | None:
    try:
        done = transport.run(("cat", path), _TIMEOUT_S)
    except PortError:
        return None
    return done.out if done.rc == 0 else None
