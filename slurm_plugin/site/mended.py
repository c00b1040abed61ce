"""Whether munge and Slurm are versions whose known holes are mended, and slurmrestd runs as nobody who matters.

A distribution mends holes in the version that it has: its security revisions (`+deb12u1`) count. Which holes they
mend is in the package's own changelog, not in its number.
"""

from __future__ import annotations

import re

from horae.doctor import Check, Verdict
from horae.port import PortError
from slurm_plugin.files.transport import Transport
from slurm_plugin.records import Facts

OK, WARN = Verdict.OK, Verdict.WARN
#: https://github.com/dun/munge/blob/master/NEWS
MUNGE = (0, 5, 18)
#: The first release of each line that is good; what is older than all lines is not kept up by SchedMD.
#: https://github.com/SchedMD/slurm/releases/tag/slurm-25-05-9-1 names what these mend.
SLURM = {(25, 5): (25, 5, 9), (25, 11): (25, 11, 8), (26, 5): (26, 5, 4)}
#: Of Debian's and of Ubuntu's security team: `-4ubuntu5` is what a release began with, `-4ubuntu5.1` came after.
_REVISION = re.compile(r"[+~]deb[0-9]+u[0-9]+|ubuntu[0-9]+\.[0-9]")
_TIMEOUT_S = 10.0


def checks(transport: Transport, facts: Facts, slurm_user: str) -> list[Check]:
    """Asks only for versions and for who runs slurmrestd, where the commands run."""
    munge = numbers(_said(transport, "munge", "--version"))
    return [
        check_munge(munge, _package(transport, "munge")),
        check_slurm(facts.version, _package(transport, "slurmctld") or _package(transport, "slurm-client")),
        *check_rest(_said(transport, "ps", "-C", "slurmrestd", "-o", "user="), slurm_user),
    ]


def check_munge(version: tuple[int, ...], package: str) -> Check:
    told = ".".join(map(str, version))
    remedy = "munge 0.5.18, or the distribution's security update, on every host: who has its key is anybody"
    if version >= MUNGE:
        return Check("munge", OK, told)
    if _REVISION.search(package):
        return Check("munge", OK, f"{package}: the distribution's security revision")
    if not version:
        return Check("munge", WARN, "its version cannot be read where the commands run", remedy)
    return Check("munge", WARN, f"{package or told} lets a local user read its key (CVE-2026-25506)", remedy)


def check_slurm(version: str, package: str) -> Check:
    found = numbers(version)
    least = SLURM.get((found[0], found[1])) if len(found) > 1 else None
    good = ", ".join(f"{major}.{minor:02d}.{patch}" for major, minor, patch in SLURM.values())
    if (least and found >= least) or (found and found > max(SLURM.values())):
        return Check("known holes", OK, f"Slurm {version}")
    if package.startswith(version) and _REVISION.search(package):
        return Check("known holes", OK, f"{package}: the distribution's security revision; its changelog names them")
    why = "has holes that its line has mended since" if least else "is of a line that SchedMD no longer mends"
    return Check("known holes", WARN, f"Slurm {version} {why}", f"{good}, or a distribution's security update")


def check_rest(users: str, slurm_user: str) -> list[Check]:
    """Nothing where none runs there."""
    mighty = sorted({user for user in users.split() if user in {"root", slurm_user}})
    if mighty:
        text = f"runs as {' and '.join(mighty)}: a hole in it is a hole in all of Slurm"
        return [Check("slurmrestd's account", WARN, text, "run it as an account of its own, which owns nothing")]
    return [Check("slurmrestd's account", OK, " ".join(sorted(set(users.split()))))] if users.split() else []


def numbers(text: str) -> tuple[int, ...]:
    """`munge-0.5.15 (2022-06-22)`, `22.05.8` -> the first version in it; empty where there is none."""
    found = re.search(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _package(transport: Transport, name: str) -> str:
    return _said(transport, "dpkg-query", "-W", "-f", "${Version}", name).strip()


def _said(transport: Transport, *argv: str) -> str:
    """What a command says; nothing where there is none, or no right to it."""
    try:
        done = transport.run(argv, _TIMEOUT_S)
    except PortError:
        return ""
    return done.out if done.rc == 0 else ""
