"""What stays at a Slurm site beside the files that `horae uninstall slurm` puts back: each told with the command that
takes it away, and taken away by `--purge`.

Only what is Horae's goes. An account that is root's, SlurmUser's or a person's stays, and so do the folders of jobs
that run on, those with checkpoints in them, and lines of the site's own files that say more than a call of our hook.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from horae.sites import CONFIG, Stay
from policy.model import BadInput
from slurm_plugin.comment import parse_tag
from slurm_plugin.files.spool import Spool
from slurm_plugin.files.transport import LocalTransport, surroundings
from slurm_plugin.site.install import DEFAULTS, setting, slurm_user, text_of

STATE = "/var/lib/horae"
_PARKED_S = 180 * 24 * 3600.0  #: who is not to begin for so long waits for us
_PEOPLE = 1000  #: the least uid of an account that is a person's
_FIELDS = "JobArrayID:|,State:|,EligibleTime:|,admin_comment:|"
_ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
)
#: a line of a site's epilog that does nothing but call ours
_CALL = (
    r"(?m)^[ \t]*(?:exec[ \t]+|sh[ \t]+|\.[ \t]+)?{hook}(?:[ \t]+\"\$@\")?[ \t]*"
    r"(?:\|\|[ \t]*(?:true|:))?[ \t]*(?:#[^\n]*)?\n?"
)


def leaving(options: Mapping[str, str], state: str = STATE, config: str = CONFIG) -> list[Stay]:
    """As installed, where `options` do not say it: read before the files are put back."""
    said = {**DEFAULTS, **_installed({**DEFAULTS, **options}), **options}
    conf = text_of(Path(said["etc"]) / "slurm.conf") or ""
    dbd = re.search(r"(?im)^\s*AccountingStorageType\s*=\s*accounting_storage/slurmdbd", conf) is not None
    user, spool, hook = said["user"], Path(said["spool"]), f"{said['lua']}/epilog.sh"
    stays = [
        Stay("horae release-all --yes", _nobody_waits, first=True),
        Stay("systemctl disable --now horae", partial(_stop, Path(said["units"]) / "horae.service"), first=True),
        Stay(f"sh {said['lua']}/release-all.sh {spool}", partial(_hand_back, said["lua"], spool), first=True),
        Stay("systemctl daemon-reload", partial(_run, "systemctl", "daemon-reload")),
    ]
    stays += _hooked(conf, hook)
    stays.append(Stay("scontrol reconfigure", partial(_run, "scontrol", "reconfigure")))
    stays += _raised(conf, said["partitions"].split(","))
    account = _account(user, slurm_user(conf))
    if dbd and account:
        stays.append(_taken_back(user, "sacctmgr", "-i", "delete", "user", user, "account=root"))
    stays.append(Stay(f"rm -r {spool}, once no job of before runs (its folder is there)", partial(_empty_spool, spool)))
    stays.append(Stay(f"rm -r {state} {config}, the journal and the configuration", partial(_forget, state, config)))
    if account:
        stays.append(_taken_back(user, "userdel", user))
    stays.append(Stay(f"rm -r {Path(said['bin']).parent}, the program, and what links to it"))
    return stays


def _hooked(conf: str, hook: str) -> list[Stay]:
    own = setting(conf, "EpilogSlurmctld")
    if own is None or own == hook or hook not in (text_of(Path(own)) or ""):
        return []
    told = f"take the line that calls {hook} out of {own}: it would end with 127"
    return [Stay(told, partial(_uncall, Path(own), hook))]


def _raised(conf: str, partitions: Sequence[str]) -> list[Stay]:
    raised = [
        name
        for name in partitions
        if name and re.search(rf"(?im)^\s*PartitionName={re.escape(name)}\s[^\n]*PriorityTier=", conf)
    ]
    return [Stay(f"PriorityTier of partition {name}: take it back, if it was raised for Horae") for name in raised]


def _installed(said: Mapping[str, str]) -> dict[str, str]:
    """What the files that are still there say."""
    found = {}
    module = text_of(Path(said["lua"]) / "horae_conf.lua") or ""
    if spool := re.search(r'(?m)^\s*spool = "([^"]+)"', module):
        found["spool"] = spool[1]
    if names := re.search(r"(?m)^\s*partitions = \{(.*)\},$", module):
        found["partitions"] = ",".join(re.findall(r'\["([\w.-]+)"\]', names[1]))
    unit = text_of(Path(said["units"]) / "horae.service") or ""
    if user := re.search(r"(?m)^User=(\S+)$", unit):
        found["user"] = user[1]
    return found


def _account(user: str, slurm: str) -> bool:
    """Whether it is one that was made for Horae."""
    try:
        return user not in {"root", slurm} and pwd.getpwnam(user).pw_uid < _PEOPLE
    except KeyError:
        return False


def _taken_back(user: str, *argv: str) -> Stay:
    """An account of another name than ours may have been there, and in use, before us: a person decides."""
    if user != DEFAULTS["user"]:
        return Stay(f"{' '.join(argv)}, if it was made for Horae")
    return Stay(" ".join(argv), partial(_run, *argv))


def _nobody_waits() -> None:
    """Raises BadInput where a job waits for an arbiter: nobody would ever start it."""
    waiting = [
        name
        for name, state, eligible_s, tag in _jobs()
        if state in {"SPECIAL_EXIT", "REQUEUE_HOLD"}
        or (state == "PENDING" and eligible_s > max(time.time(), tag) + _PARKED_S)
    ]
    if waiting:
        shown = ", ".join(waiting[:20]) + (" ..." if len(waiting) > 20 else "")
        raise BadInput(f"jobs still wait for Horae: {shown}", where="squeue", remedy="horae release-all --yes")


def _jobs() -> list[tuple[str, str, float, float]]:
    """Of those that Horae has seen: (folder, state, eligible, the begin time that was asked for)."""
    found = []
    for line in _run("squeue", "-h", "-a", "-t", "all", "-O", _FIELDS).splitlines():
        number, state, eligible, comment = (line.split("|", 3) + [""] * 3)[:4]
        tag = parse_tag(comment.rstrip("|"))
        if tag is not None:
            at_s = float(eligible) if eligible.isdigit() else 0.0
            found.append((f"{number.partition('%')[0]}.{tag.nonce}", state, at_s, tag.begin_s or 0.0))
    return found


def _stop(unit: Path) -> None:
    if unit.exists():
        _run("systemctl", "disable", "--now", "horae")


def _hand_back(lua: str, spool: Path) -> None:
    """Who came since: the module goes on holding jobs until the arbiter's last heartbeat is two minutes old."""
    script = Path(lua) / "release-all.sh"
    if script.exists():
        _run("sh", str(script), str(spool))


def _uncall(own: Path, hook: str) -> None:
    text = text_of(own) or ""
    left = re.sub(_CALL.format(hook=re.escape(hook)), "", text)
    if hook in left:
        raise BadInput(f"calls {hook} in a line that says more", where=str(own), remedy="edit it by hand")
    with own.open("rb+") as file:  # its owner, mode and links stay
        file.write(os.fsencode(left))
        file.truncate()


def _empty_spool(spool: Path) -> None:
    """What Horae made there; a folder of a job that runs on, or that holds a checkpoint, stays and is named."""
    if not spool.exists():
        return
    living = {name for name, state, _, _ in _jobs() if state not in _ENDED}
    left = Spool(LocalTransport().files, str(spool)).clean(time.time(), 0.0, 0, living)
    left += [f"{spool}/jobs/{name}: its job runs" for name in sorted(living) if (spool / "jobs" / name).exists()]
    for name in ("heartbeat", "claim", "events", "beside", "holds", "ordered", "marks", ".probe", "state/memos"):
        (spool / name).unlink(missing_ok=True)
    for path in (spool / "reasons").glob("*"):
        path.unlink()
    for name in ("reasons", "jobs", "state", ""):
        with suppress(OSError):  # what is left there is named
            (spool / name).rmdir()
    if spool.exists():
        left += [str(path) for path in sorted(spool.iterdir()) if path.name != "jobs" or not left]
        raise BadInput(
            f"not empty: {'; '.join(left[:20])}", where=str(spool), remedy="look at it, and remove it by hand"
        )


def _forget(state: str, config: str) -> None:
    folder = Path(state)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    Path(config).unlink(missing_ok=True)
    with suppress(OSError):  # somebody else's files are there
        Path(config).parent.rmdir()


def _run(*argv: str) -> str:
    environment = {**surroundings(), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(str(error), where=" ".join(argv), remedy="run it by hand") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise BadInput(
            said[-1] if said else f"ended with {done.returncode}", where=" ".join(argv), remedy="run it by hand"
        )
    return done.stdout
