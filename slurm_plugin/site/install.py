"""Files of a Slurm site that Horae adds or edits, as values; `horae install slurm` shows and writes them.

Edits of the site's own files are one marked block at the end (job_submit.lua) or one line (slurm.conf), so that they
can be read, kept under the site's configuration management, and taken out by hand.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from horae.cli.manual import page
from horae.sites import CONFIG, Change, systemd_unit
from policy.model import BadInput

HERE = Path(__file__).parent
BEGIN, END = "-- horae: begin (two lines that chain Horae's module; remove them to leave)", "-- horae: end"
_COMPLETION = b'eval "$(horae completion bash)"\n'
DEFAULTS = {
    "partitions": "",  # managed ones, by commas
    "etc": "/etc/slurm",  # where slurm.conf and job_submit.lua are
    "lua": "/etc/horae/slurm",  # where the module goes; slurmctld's user must read it
    "spool": "/var/spool/horae",
    "user": "horae",  # the service account
    "interactive": "hold",  # srun and salloc wait as rigid jobs; "pass": they are Slurm's own; "refuse"
    "heterogeneous": "pass",  # jobs of several components are Slurm's own; "refuse"
    "stale_s": "120",
    "bin": "/opt/horae/bin",  # of the venv that holds the program
    "units": "/etc/systemd/system",
    "logrotate": "/etc/logrotate.d",
    "man": "/usr/local/share/man/man1",
    "completion": "/usr/local/share/bash-completion/completions",
    "slurm_conf": "yes",  # edit slurm.conf too; "no": only say what to add
}


def _conf(path: Path, partitions: Sequence[str]) -> str:
    """Its text, where it has these partitions, or names none. Raises BadInput."""
    conf = text_of(path)
    if conf is None:
        raise BadInput("there is no such file", where=str(path), remedy="--set etc=FOLDER of slurm.conf")
    known = re.findall(r"(?im)^\s*PartitionName=(\S+)", conf)
    for name in partitions:
        if known and name not in known:
            raise BadInput(f"no partition '{name}'", where=str(path), field="partitions", remedy=", ".join(known))
    return conf


def planned(options: Mapping[str, str]) -> tuple[list[Change], list[str]]:
    """(changes, commands to run after them). Raises BadInput."""
    unknown = next((name for name in options if name not in DEFAULTS), None)
    if unknown:
        raise BadInput("no such option", where="--set", field=unknown, remedy=f"one of {', '.join(DEFAULTS)}")
    said = {**DEFAULTS, **options}
    partitions = [name for name in said["partitions"].split(",") if name]
    if not partitions:
        raise BadInput("no managed partition", where="--set", field="partitions", remedy="--set partitions=gpu")
    conf_path = Path(said["etc"]) / "slurm.conf"
    conf = _conf(conf_path, partitions)
    lua, ours = Path(said["lua"]), written(said["spool"])
    changes = [
        Change(lua / "horae.lua", ours["horae.lua"].encode(), "the Lua module: holds and tags GPU jobs"),
        Change(lua / "horae_conf.lua", _lua_conf(said, partitions, conf).encode(), "its configuration"),
        Change(lua / "release-all.sh", ours["release-all.sh"].encode(), "leaving without Python", 0o755),
        _job_submit(Path(said["etc"]) / "job_submit.lua", lua),
        Change(Path(said["units"]) / "horae.service", _unit(said).encode(), "the arbiter as a hardened service"),
        Change(Path(said["logrotate"]) / "horae", _logrotate(said).encode(), "its log"),
        Change(Path(said["man"]) / "horae.1", page().encode(), "the manual page"),
        Change(Path(said["completion"]) / "horae", _COMPLETION, "completion, loaded by bash when it is asked for"),
    ]
    epilog = lua / "epilog.sh"
    changes.append(Change(epilog, ours["epilog.sh"].encode(), "a job's end wakes the arbiter; it never waits", 0o755))
    edited = edit_slurm_conf(conf, str(epilog))
    group = _group(slurm_user(conf))
    commands = []
    if _uid(said["user"]) is None:  # the module must know its uid, or it would refuse the arbiter's own changes
        again = f"horae install slurm --set user={said['user']} ... --yes, as now"
        commands.append(f"useradd --system --no-create-home {said['user']}; then again: {again}")
    commands.append(f"install -d -o {said['user']} -g {group} -m 2775 {said['spool']}")
    if edited != conf and said["slurm_conf"] == "yes":
        why = "the Lua plugin, exit code 86 as 'held, not failed', and the epilog"
        changes.append(Change(conf_path, os.fsencode(edited), why))
    elif edited != conf:
        commands.append(f"add to {conf_path}: {', '.join(_missing(conf, str(epilog)))}")
    own = setting(conf, "EpilogSlurmctld")
    if own not in {None, str(epilog)}:
        commands.append(f"call {epilog} from your own {own}, as its last line (jobs' ends then wake the arbiter)")
    if re.search(r"(?im)^\s*AccountingStorageType\s*=\s*accounting_storage/slurmdbd", conf):
        commands.append(f"sacctmgr -i add user {said['user']} account=root adminlevel=Operator")
    commands.append("scontrol reconfigure")
    if own is None:  # Slurm takes up a first EpilogSlurmctld only when it starts; jobs run on meanwhile
        commands.append("systemctl restart slurmctld")
    commands += [f"# write {CONFIG}, as the guide has it", "systemctl daemon-reload", f"horae doctor {CONFIG}"]
    commands.append("systemctl enable --now horae")
    return changes, commands


def written(spool: str) -> dict[str, str]:
    """Files that are the same on every site with this spool, by name."""
    texts = {name: (HERE / name).read_text() for name in ("horae.lua", "release-all.sh", "epilog.sh")}
    return {name: text.replace("@SPOOL@", spool) for name, text in texts.items()}


def edit_slurm_conf(text: str, epilog: str = "") -> str:
    """slurm.conf with our settings merged into what stands there; unchanged when they are there. A site's own
    EpilogSlurmctld, of which there can be one, is left alone."""
    text = _merged(text, "JobSubmitPlugins", "lua")
    text = _merged(text, "RequeueExitHold", "86")
    return _merged(text, "EpilogSlurmctld", epilog) if epilog and not setting(text, "EpilogSlurmctld") else text


def _missing(conf: str, epilog: str) -> list[str]:
    """The lines that the edit would add or change."""
    edited = set(edit_slurm_conf(conf, epilog).splitlines())
    return sorted(edited - set(conf.splitlines()))


def setting(conf: str, key: str) -> str | None:
    found = re.search(rf"(?im)^[ \t]*{key}[ \t]*=[ \t]*([^\s#]+)", conf)
    return found.group(1) if found else None


def _merged(text: str, key: str, value: str) -> str:
    found = re.search(rf"(?im)^([ \t]*{key}[ \t]*=[ \t]*)([^\s#]*)", text)
    if found is None:
        return text + ("" if text.endswith("\n") or not text else "\n") + f"{key}={value}\n"
    if value in _values(found.group(2)):
        return text
    joined = f"{found.group(2)},{value}" if found.group(2) else value
    return text[: found.start()] + found.group(1) + joined + text[found.end() :]


def _values(text: str) -> set[str]:
    values = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if dash and low.isdigit() and high.isdigit():
            values |= {str(number) for number in range(int(low), int(high) + 1)}
        values.add(part)
    return values


def _job_submit(path: Path, lua: Path) -> Change:
    block = (
        f'{BEGIN}\nlocal horae_ok, horae = pcall(dofile, "{lua}/horae.lua")\n'
        f"if horae_ok then horae.chain() end\n{END}\n"
    )
    text = text_of(path)
    if text is None:
        site = (
            "function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end\n"
            "function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end\n"
        )
        return Change(path, f"{site}{block}return slurm.SUCCESS\n".encode(), "a job_submit script with Horae's module")
    marked = re.search(re.escape(BEGIN) + r"\n.*?" + re.escape(END) + r"\n", text, re.DOTALL)
    if marked:
        after = text[: marked.start()] + block + text[marked.end() :]
    else:
        # Before a final `return`, which must stay the last statement of a Lua chunk.
        last = re.search(r"(?m)^return\b[^\n]*\n?\s*\Z", text)
        at = last.start() if last else len(text)
        before = text[:at] + ("" if not text[:at] or text[:at].endswith("\n") else "\n")
        after = before + block + text[at:]
    return Change(path, os.fsencode(after), "Horae's module chained behind the site's own script")


def _lua_conf(said: Mapping[str, str], partitions: list[str], conf: str) -> str:
    users = [said["user"], "root", slurm_user(conf)]
    uids = sorted({uid for name in users if (uid := _uid(name)) is not None})
    default = re.search(r"(?im)^\s*PartitionName=(\S+)[^\n]*\bDefault=YES\b", conf)
    names = ", ".join(f"{_quoted(name)} = true" for name in partitions)
    if not said["stale_s"].isdigit():
        raise BadInput("is not a number of seconds", where="--set", field="stale_s", value=said["stale_s"])
    for field, choices in (("interactive", ("hold", "pass", "refuse")), ("heterogeneous", ("pass", "refuse"))):
        if said[field] not in choices:
            remedy = f"one of {', '.join(choices)}"
            raise BadInput("is not known", where="--set", field=field, value=said[field], remedy=remedy)
    return (
        "-- Horae's Lua module: its configuration (written by `horae install slurm`)\n"
        f'return {{\n  partitions = {{{names}}},\n  spool = "{said["spool"]}",\n  stale_s = {said["stale_s"]},\n'
        f"  admins = {{{', '.join(f'[{uid}] = true' for uid in uids)}}},\n"
        f'  interactive = "{said["interactive"]}",\n  heterogeneous = "{said["heterogeneous"]}",\n'
        + (f'  default_partition = "{default.group(1)}",\n' if default else "")
        + "}\n"
    )


def _quoted(name: str) -> str:
    if not re.fullmatch(r"[\w.-]+", name):
        raise BadInput(f"'{name}' is not a partition's name", where="--set", field="partitions", value=name)
    return f'["{name}"]'


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def slurm_user(conf: str) -> str:
    return setting(conf, "SlurmUser") or "root"


def _group(user: str) -> str:
    """A user's own group; its name where there is no such user here."""
    try:
        return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    except KeyError:
        return user


def _unit(said: Mapping[str, str]) -> str:
    return systemd_unit(said["user"], said["bin"], "0022", "munge.service slurmctld.service", said["spool"])


def _logrotate(said: Mapping[str, str]) -> str:
    return f"""/var/lib/horae/*.log {{
    weekly
    rotate 8
    compress
    missingok
    notifempty
    copytruncate
    su {said["user"]} {said["user"]}
}}
"""


def text_of(path: Path) -> str | None:
    """Whatever its encoding and ends of lines: `os.fsencode` gives its very bytes back."""
    try:
        return os.fsdecode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path)) from error
