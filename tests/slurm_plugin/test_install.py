"""Installing on a site's files: a diff first, idempotent, and back byte for byte."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from horae import sites
from horae.cli import COMMANDS
from horae.cli.install import uninstall
from policy.model import BadInput
from slurm_plugin.site.install import edit_slurm_conf, planned
from slurm_plugin.site.leaving import leaving

CONF = """# a site's own
ClusterName=c
SlurmUser=slurm
JobSubmitPlugins=require_timelimit
RequeueExitHold=99
PartitionName=gpu Nodes=n[1-4] Default=YES
PartitionName=cpu Nodes=c[1-4]
"""
LUA = """function slurm_job_submit(jd, parts, uid)
  return slurm.SUCCESS
end
function slurm_job_modify(jd, rec, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "slurm.conf").write_text(CONF)
    (etc / "job_submit.lua").write_text(LUA)
    return {
        "partitions": "gpu",
        "etc": str(etc),
        "lua": str(tmp_path / "lua"),
        "units": str(tmp_path / "units"),
        "logrotate": str(tmp_path / "logrotate"),
        "man": str(tmp_path / "man"),
        "completion": str(tmp_path / "completion"),
        "user": getpass.getuser(),
        "spool": "/srv/horae",
    }


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_install_is_idempotent_and_uninstall_restores_every_byte(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "etc/job_submit.lua").chmod(0o640)
    before = everything(tmp_path)
    record = tmp_path / "record.json"
    changes, commands = planned(options)
    assert all(sites.diff(change) for change in sites.pending(changes))
    assert everything(tmp_path) == before, "a dry run wrote something"
    sites.apply(changes, record)
    assert (tmp_path / "etc/job_submit.lua").stat().st_mode & 0o777 == 0o640
    assert sites.pending(planned(options)[0]) == []
    assert "scontrol reconfigure" in commands
    after = everything(tmp_path)
    sites.apply(planned(options)[0], record)
    assert everything(tmp_path) == after
    done, left = sites.restore(record)
    assert (len(done), left) == (len(changes), [])
    assert everything(tmp_path) == before


def test_what_a_sites_own_files_are_beside_their_text_stays(options: dict[str, str], tmp_path: Path) -> None:
    """Links to where a site keeps its settings, who else may read them, another encoding, other ends of lines."""
    etc, kept, record = tmp_path / "etc", tmp_path / "managed", tmp_path / "record.json"
    kept.mkdir()
    texts = {"slurm.conf": f"# caf\xe9\n{CONF}".encode("latin-1"), "job_submit.lua": LUA.replace("\n", "\r\n").encode()}
    for name, text in texts.items():
        (kept / name).write_bytes(text)
        os.setxattr(kept / name, "user.note", b"managed")
        (etc / name).unlink()
        (etc / name).symlink_to(kept / name)
    sites.apply(planned(options)[0], record)
    edited = {name: (kept / name).read_bytes() for name in texts}
    assert edited["slurm.conf"].startswith(b"# caf\xe9\n")
    assert b"lua" in edited["slurm.conf"]
    assert edited["job_submit.lua"].startswith(texts["job_submit.lua"].partition(b"return slurm.SUCCESS\r\nend")[0])
    assert sites.pending(planned(options)[0]) == []
    sites.restore(record)
    for name, text in texts.items():
        assert (etc / name).readlink() == kept / name
        assert ((kept / name).read_bytes(), os.getxattr(kept / name, "user.note")) == (text, b"managed")


def test_a_second_installation_with_other_options_still_goes_back_to_the_first_state(
    options: dict[str, str], tmp_path: Path
) -> None:
    before = everything(tmp_path)
    record = tmp_path / "record.json"
    sites.apply(planned(options)[0], record)
    sites.apply(planned({**options, "partitions": "gpu,cpu"})[0], record)
    assert b'["cpu"] = true' in (tmp_path / "lua/horae_conf.lua").read_bytes()
    assert (tmp_path / "etc/job_submit.lua").read_text().count("horae.chain()") == 1
    sites.restore(record)
    assert everything(tmp_path) == before


def test_a_file_edited_since_is_left_alone_and_named(options: dict[str, str], tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    sites.apply(planned(options)[0], record)
    edited = tmp_path / "etc/slurm.conf"
    edited.write_text(edited.read_text() + "# by the admin\n")
    _, left = sites.restore(record)
    assert left == [str(edited)]
    assert "# by the admin" in edited.read_text()
    assert (tmp_path / "etc/job_submit.lua").read_text() == LUA


def test_the_module_is_chained_before_the_last_return(options: dict[str, str], tmp_path: Path) -> None:
    sites.apply(planned(options)[0], tmp_path / "record.json")
    lines = (tmp_path / "etc/job_submit.lua").read_text().splitlines()
    assert lines[-1] == "return slurm.SUCCESS"
    assert "horae.chain()" in lines[-3]


def test_a_site_without_a_script_gets_one(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "etc/job_submit.lua").unlink()
    record = tmp_path / "record.json"
    sites.apply(planned(options)[0], record)
    assert "slurm_job_modify" in (tmp_path / "etc/job_submit.lua").read_text()
    sites.restore(record)
    assert not (tmp_path / "etc/job_submit.lua").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A=1\n", "A=1\nJobSubmitPlugins=lua\nRequeueExitHold=86\n"),
        ("JobSubmitPlugins=lua\nRequeueExitHold=80-90\n", "JobSubmitPlugins=lua\nRequeueExitHold=80-90\n"),
        ("jobsubmitplugins = x # why\nRequeueExitHold=1", "jobsubmitplugins = x,lua # why\nRequeueExitHold=1,86"),
    ],
)
def test_settings_are_merged_into_what_stands_there(before: str, after: str) -> None:
    assert edit_slurm_conf(before) == after
    assert edit_slurm_conf(after) == after


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"partitions": ""}, "partitions"),
        ({"partitions": "nope"}, "partitions"),
        ({"stale_s": "soon"}, "stale_s"),
        ({"interactive": "maybe"}, "interactive"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], change: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput) as raised:
        planned({**options, **change})
    assert raised.value.field == field


def test_a_sites_own_epilog_is_left_alone_and_the_administrator_is_told(
    options: dict[str, str], tmp_path: Path
) -> None:
    conf = tmp_path / "etc/slurm.conf"
    conf.write_text(CONF + "EpilogSlurmctld=/etc/slurm/ours.sh\n")
    changes, commands = planned(options)
    sites.apply(changes, tmp_path / "record.json")
    assert "EpilogSlurmctld=/etc/slurm/ours.sh\n" in conf.read_text()
    assert any("/etc/slurm/ours.sh" in command and "epilog.sh" in command for command in commands)


def test_an_account_that_is_not_there_is_told(options: dict[str, str]) -> None:
    """Its uid would be missing among the module's admins, without a word."""
    _, commands = planned({**options, "user": "nosuch"})
    assert commands[0].startswith("useradd --system --no-create-home nosuch; then again: horae install slurm")
    _, commands = planned({**options, "user": getpass.getuser()})
    assert not any("useradd" in command for command in commands)
    assert commands[-1] == "systemctl enable --now horae"


def test_what_stays_after_uninstall_is_told_with_the_command_for_it(
    options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf, own = Path(options["etc"]) / "slurm.conf", tmp_path / "site-epilog.sh"
    own.write_text(f"#!/bin/sh\n{options['lua']}/epilog.sh\n")
    dbd = "AccountingStorageType=accounting_storage/slurmdbd\n"
    conf.write_text(conf.read_text() + f"EpilogSlurmctld={own}\n{dbd}")
    changes, _ = planned(options)
    record = tmp_path / "installed.json"
    sites.apply(changes, record)
    words = [f"{name}={value}" for name, value in options.items()]
    uninstall("slurm", words, yes=True, record=record)
    told = capsys.readouterr().out
    for command in (
        f"the line that calls {options['lua']}/epilog.sh out of {own}", "scontrol reconfigure",
        "/var/lib/horae", "systemctl disable --now horae", "rm -r /srv/horae", "release-all",
    ):  # fmt: skip
        assert command in told
    assert "userdel" not in told, "the account is not one that was made for Horae"
    assert "sacctmgr" not in told
    own.write_text("#!/bin/sh\n")
    assert not any("the line that calls" in stay.text for stay in leaving(options))


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands of a site, at the process boundary: they note what they are told; squeue says what `queue` holds."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("squeue", "scontrol", "sacctmgr", "systemctl", "userdel"):
        body = f'cat "{folder}/queue"' if name == "squeue" else f'echo {name} "$@" >> "{folder}/ran"'
        (folder / name).write_text(
            f'#!/bin/sh\n[ ! -e "{folder}/{name}.fails" ] || {{ echo no >&2; exit 1; }}\n{body}\n'
        )
        (folder / name).chmod(0o755)
    (folder / "queue").write_text("")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def purged(options: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """What became of each thing that stays: nothing, or why it could not be removed."""
    found = {}
    for stay in leaving(options, str(tmp_path / "state"), str(tmp_path / "config/config.yaml")):
        try:
            found[stay.text.partition(",")[0]] = "" if stay.remove is None else str(stay.remove() or "")
        except BadInput as error:
            found[stay.text.partition(",")[0]] = str(error)
    return found


def test_purge_leaves_nothing_but_what_is_others(options: dict[str, str], tmp_path: Path, slurm: Path) -> None:
    spool, own = tmp_path / "spool", tmp_path / "site-epilog.sh"
    options["spool"] = str(spool)
    conf = Path(options["etc"]) / "slurm.conf"
    conf.write_text(conf.read_text() + f"EpilogSlurmctld={own}\n")
    hook = f"{options['lua']}/epilog.sh"
    own.write_text(f'#!/bin/sh\nsite\n{hook} "$@" || true  # Horae\n')
    sites.apply(planned(options)[0], tmp_path / "installed.json")
    for name in ("jobs/1.aa", "jobs/2.bb", "jobs/3.cc/checkpoint", "reasons", "state"):
        (spool / name).mkdir(parents=True)
    for name in (
        "heartbeat",
        "claim",
        "events",
        "beside",
        "holds",
        "ordered",
        "jobs/1.aa/output.log",
        "reasons/1",
        "state/memos",
    ):
        (spool / name).write_text("")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/journal").write_text("")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("")
    (slurm / "queue").write_text("1|COMPLETED|5|horae=aa,gpus=1|\n2|RUNNING|5|horae=bb,gpus=1|\n3|FAILED|5|horae=cc|\n")

    # The spool need not be said again: the files that are still there say it.
    found = purged({name: value for name, value in options.items() if name != "spool"}, tmp_path)
    told = found.pop(f"rm -r {spool}")
    assert "jobs/2.bb: its job runs" in told
    assert "jobs/3.cc" in told
    assert set(found.values()) == {""}
    assert not any((tmp_path / name).exists() for name in ("state", "config"))
    assert sorted(str(path.relative_to(spool)) for path in spool.rglob("*")) == [
        "jobs", "jobs/2.bb", "jobs/3.cc", "jobs/3.cc/checkpoint",
    ]  # fmt: skip
    assert own.read_text() == "#!/bin/sh\nsite\n"
    ran = (slurm / "ran").read_text().splitlines()
    assert ran[0] == "systemctl disable --now horae"
    assert ran[-2:] == ["systemctl daemon-reload", "scontrol reconfigure"]
    assert not (spool / "heartbeat").exists()


@pytest.mark.parametrize(("user", "ours"), [("horae", True), ("batchd", False), ("slurm", False)])
def test_an_account_that_a_site_may_have_had_before_is_not_deleted(
    options: dict[str, str], tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch, user: str, ours: bool
) -> None:
    conf = Path(options["etc"]) / "slurm.conf"
    conf.write_text(conf.read_text() + "AccountingStorageType=accounting_storage/slurmdbd\n")
    monkeypatch.setattr("pwd.getpwnam", lambda _name: SimpleNamespace(pw_uid=990, pw_gid=990))
    told = purged({**options, "user": user}, tmp_path)
    assert [name for name in told if name.startswith("userdel")] == ([] if user == "slurm" else [f"userdel {user}"])
    ran = (slurm / "ran").read_text()
    assert ("userdel" in ran, "sacctmgr" in ran) == (ours, ours)


@pytest.mark.parametrize(
    ("row", "waits"),
    [
        ("7_[1-9%2]|PENDING|99999999999|horae=aa,gpus=1|", True),
        ("7|SPECIAL_EXIT|5|other horae=aa,gpus=1|", True),
        ("7|PENDING|99999999999|horae=aa,gpus=1,begin=99999999999|", False),  # its user's own time
        ("7|PENDING|99999999999||", False),  # not ours
        ("7|RUNNING|5|horae=aa,gpus=1|", False),
    ],
)
def test_nothing_is_purged_while_jobs_wait_for_horae(
    options: dict[str, str], tmp_path: Path, slurm: Path, row: str, waits: bool
) -> None:
    record = tmp_path / "installed.json"
    sites.apply(planned(options)[0], record)
    before = everything(tmp_path / "etc")
    (slurm / "queue").write_text(f"{row}\n")
    first = [stay for stay in leaving(options) if stay.first]
    assert first[0].remove is not None
    if not waits:
        first[0].remove()
        return
    words = [f"{name}={value}" for name, value in options.items()]
    with pytest.raises(BadInput, match="jobs still wait for Horae: 7"):
        uninstall("slurm", words, yes=True, purge=True, record=record)
    assert everything(tmp_path / "etc") == before
    assert not (slurm / "ran").exists()


def test_a_line_of_the_sites_own_epilog_that_says_more_is_left(
    options: dict[str, str], tmp_path: Path, slurm: Path
) -> None:
    conf, own = Path(options["etc"]) / "slurm.conf", tmp_path / "site-epilog.sh"
    text = f"#!/bin/sh\n[ -e /x ] && {options['lua']}/epilog.sh\n"
    own.write_text(text)
    conf.write_text(conf.read_text() + f"EpilogSlurmctld={own}\n")
    (slurm / "scontrol.fails").write_text("")
    found = purged(options, tmp_path)
    assert own.read_text() == text
    assert "edit it by hand" in next(why for what, why in found.items() if what.startswith("take the line"))
    assert "no" in found["scontrol reconfigure"]


@pytest.mark.parametrize("events", ["plain", "missing", "fifo", "link", "readonly"])
def test_the_epilog_never_waits_and_never_fails(options: dict[str, str], tmp_path: Path, events: str) -> None:
    """Whatever stands in the spool: Slurm waits for this script before it frees the job."""
    spool = tmp_path / "spool"
    spool.mkdir()
    sites.apply(planned({**options, "spool": str(spool)})[0], tmp_path / "record.json")
    path = spool / "events"
    if events == "fifo":
        os.mkfifo(path)
    elif events == "link":
        path.symlink_to("/dev/full")
    elif events != "missing":
        path.write_text("")
        path.chmod(0o444 if events == "readonly" else 0o644)
    times = 20 if events == "plain" else 1
    for _ in range(times):
        with subprocess.Popen(
            [str(tmp_path / "lua/epilog.sh")],
            env={},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as hook:
            assert hook.wait(20) == 0
            with suppress(ProcessLookupError):
                os.killpg(hook.pid, signal.SIGKILL)  # as slurmctld does
            assert hook.communicate() == (b"", b"")
    if events == "plain":
        deadline = time.monotonic() + 240
        while path.read_text() != "end\n" * times:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_manual_page_has_every_command_and_is_clean_roff(options: dict[str, str], tmp_path: Path) -> None:
    sites.apply(planned(options)[0], tmp_path / "record.json")
    text = (tmp_path / "man/horae.1").read_text()
    for name in COMMANDS:
        assert f".SS horae {name.replace('-', chr(92) + '-')}" in text
    known = (".TH", ".SH", ".SS", ".TP", ".PP", ".B ", ".I ")
    assert [line for line in text.splitlines() if line.startswith(".") and not line.startswith(known)] == []
    assert "[bold]" not in text
