"""pyslurm in a mini-cluster of 26.05: built once by containers/slurm/pyslurm.sh, and kept in a cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from horae.lab import containers
from slurm_plugin.lab.containers import ContainerSlurm

_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")  #: also those of the host's own site


def with_pyslurm(lab: ContainerSlurm, cache: Path) -> str:
    """The Python beside slurmctld that has pyslurm. Minutes, the first time; BadInput with the build's last words."""
    python = "/opt/pyslurm/bin/python"
    if lab.exec("ctl", ["test", "-x", python])[0] == 0:
        return python
    here, there, kept = lab.folder / "shared", "/shared", cache / "pyslurm"
    if kept.is_dir():
        shutil.copytree(kept, here / "pyslurm", dirs_exist_ok=True)
    shutil.copy(containers("slurm") / "pyslurm.sh", here)
    argv = ["bash", f"{there}/pyslurm.sh", f"{there}/pyslurm"]
    if _AUTHORITIES.is_file():
        shutil.copy(_AUTHORITIES, here)
        argv.append(f"{there}/{_AUTHORITIES.name}")
    lab.must("ctl", argv)
    shutil.copytree(here / "pyslurm", kept, dirs_exist_ok=True)
    return python
