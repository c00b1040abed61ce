"""The script that hands jobs back without Python, at the commands that it calls: what real Slurm makes of its orders is
seen in `tests/real`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "slurm_plugin/site/release-all.sh"
#: JobArrayID, State, PriorityLong, restartcnt, EligibleTime, SubmitTime, Partition, admin_comment
PARKED = "7|PENDING|100|0|9999999999|9968377599|gpu|horae=abc,gpus=2,nodes=1,cpus=2,shape=own|"
GIVEN = "8|PENDING|100|0|9999999999|9999999000|gpu|horae=abd,gpus=2,nodes=1,cpus=2,shape=own|"
STRANGER = "9|PENDING|0|0|N/A|9999999000|gpu||"
LIST = "gpus=2,nodes=1,shape=own,beside=raw/old,list=gpu/raw/old|"


def handed_back(folder: Path, squeue: str, spool: str = "spool", **caller: str) -> tuple[int, list[str]]:
    """The script's exit code, and what scontrol was told. It ends with 1 at a blank line, as the real one does, and in
    silence; where there is a file `starts` in the folder, which it takes away; and where `says` is one, with its words.
    What it shows of the configuration and of jobs are files there too. `caller`: of its caller's environment."""
    commands, told, starts = folder / "bin", folder / "told", folder / "starts"
    commands.mkdir()
    shows = f'[ "$1" = show ] && {{ cat {folder}/$2$3; exit; }}; cat >> {told}'
    scontrol = f'{shows}; ! rm {starts} 2>&- && ! grep -qx "" {told} && ! cat {folder}/says >&2 2>&-'
    for name, text in {"squeue": squeue, "scontrol": scontrol}.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", **caller}
    done = subprocess.run(["sh", SCRIPT, spool], env=env, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, [line for line in (told.read_text() if told.exists() else "").splitlines() if line]


def test_each_job_of_ours_is_given_its_time_again(tmp_path: Path) -> None:
    rows = "\n".join((PARKED, GIVEN, STRANGER))
    assert handed_back(tmp_path, f"cat <<'EOF'\n{rows}\nEOF") == (
        0,
        ["update jobid=7 StartTime=now", "update jobid=8 StartTime=uts9999999999"],
    )


def test_what_a_site_writes_before_the_mark_hides_no_job(tmp_path: Path) -> None:
    rows = (PARKED.replace("horae=", "a|b| horae=") + "BeginTime|", GIVEN.replace("horae=", "| horae="))
    told = ["update jobid=7 StartTime=now", "update jobid=8 StartTime=uts9999999999"]
    assert handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join((rows[0], rows[1] + "None|")) + "\nEOF") == (0, told)


def test_a_job_whose_mark_was_written_over_is_known_by_the_note(tmp_path: Path) -> None:
    """Not another that was given its number since."""
    _, *rest = PARKED.split("|")
    rows = [f"{number}|{'|'.join(rest[:-2])}|seen by the desk|" for number in (7, 8, "9_[1-3]")]
    (tmp_path / "spool").mkdir()
    tag = rest[-2]
    (tmp_path / "spool/marks").write_text(f"7 9968377599 0 {tag}\n8 9968377000 0 {tag}\n9_1 9968377599 0 {tag}\n")
    told = ["update jobid=7 StartTime=now", "update jobid=9_[1-3] StartTime=now"]
    assert handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF") == (0, told)


def test_tasks_are_said_in_the_last_update_of_a_job(tmp_path: Path) -> None:
    """A release is an update too, and some releases of Slurm lose them at each."""
    own, (_, *rest) = "horae=abc,gpus=2,nodes=1,shape=own,tasks=4|", PARKED.split("|")
    rows = [
        f"7|{'|'.join(rest[:-2])}|{own}",
        f"8|PENDING|0|1|9999999000|9999999000|gpu|{own}",
    ]
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/holds").write_text("8.abc\n")
    code, told = handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF")
    assert code == 0
    assert re.fullmatch(r"update jobid=8 StartTime=uts\d+", told.pop(1))
    last = "update jobid=8 StartTime=now NumTasks=4"
    assert told == ["update jobid=7 StartTime=now NumTasks=4", "release 8", last]


def test_a_list_of_partitions_is_whole_again_and_a_hold_there_is_others(tmp_path: Path) -> None:
    rows = [
        f"{number}|PENDING|{priority}|0|9999999000|9999999000|{partition}|horae={number},{LIST}"
        for number, priority, partition in ((1, 100, "raw,old"), (2, 0, "raw,old"), (3, 100, "gpu,raw,old"))
    ]
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/holds").write_text("2.2\n")
    assert handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF") == (
        0,
        [
            "update jobid=1 Partition=gpu,raw,old",
            "update jobid=2 Partition=gpu,raw,old",
            "update jobid=3 StartTime=uts9999999000",
        ],
    )


def test_where_the_jobs_cannot_be_read_it_says_so_by_its_exit_code(tmp_path: Path) -> None:
    code, told = handed_back(tmp_path, f"echo '{PARKED}'; exit 1")
    assert (code != 0, told) == (True, [])


def test_what_its_caller_set_for_himself_hides_no_job(tmp_path: Path) -> None:
    """Words of squeue's and scontrol's that narrow what they show, or mean another cluster."""
    mine = {"SQUEUE_USERS": "root", "SQUEUE_PARTITION": "mine", "SCONTROL_LOCAL": "1", "SLURM_CLUSTERS": "other"}
    odd = {"OTHER": "a\nSQUEUE_STATES=x", "IFS": "U", "SLURM_CONF": "/etc/slurm.conf"}
    narrow = "env | grep -q '^SQUEUE_[A-Z]*=[rm]\\|^SCONTROL\\|^SLURM_CLUSTERS'"
    squeue = f"{narrow} || [ $SLURM_CONF != /etc/slurm.conf ] || echo '{PARKED}'"
    assert handed_back(tmp_path, squeue, **mine, **odd) == (0, ["update jobid=7 StartTime=now"])


def test_a_spool_is_a_folder_whatever_its_name_looks_like(tmp_path: Path) -> None:
    spool = tmp_path / "-r * $(id)\n;x"
    spool.mkdir()
    (spool / "heartbeat").touch()
    (tmp_path / "heartbeat").touch()
    assert handed_back(tmp_path, f"echo '{PARKED}'", spool.name) == (0, ["update jobid=7 StartTime=now"])
    assert (list(spool.iterdir()), (tmp_path / "heartbeat").exists()) == ([], True)


def test_a_mark_that_makes_no_sense_keeps_no_other_job(tmp_path: Path) -> None:
    """Some awks end at a division by nothing, for all jobs."""
    none = PARKED.replace("7|", "6|", 1).replace("nodes=1", "nodes=0").replace(",shape=own", "")
    code, told = handed_back(tmp_path, f"printf '%s\\n' '{none}' '{PARKED}'")
    shape = "NumNodes=1-1 NumTasks=1 CpusPerTask=2 NumCPUs=2 Gres=gpu:2"
    assert (code, told[0], told[-1]) == (0, f"update jobid=6 ReqNodeList= {shape}", "update jobid=7 StartTime=now")


def test_where_nothing_waits_there_is_nothing_to_do_and_all_is_well(tmp_path: Path) -> None:
    assert handed_back(tmp_path, f"echo '{STRANGER}'") == (0, [])


def test_a_job_that_starts_between_the_look_and_its_update_is_not_looked_for_again(tmp_path: Path) -> None:
    (tmp_path / "starts").touch()
    runs = PARKED.replace("PENDING", "RUNNING")
    squeue = f"[ -e {tmp_path}/starts ] && echo '{PARKED}' || echo '{runs}'"
    assert handed_back(tmp_path, squeue) == (0, ["update jobid=7 StartTime=now"])


def untagged(record: str, state: str = "PENDING") -> str:
    return f"{record}|{state}|100|0|9999999000|9999999000|gpu||"


def ordered(folder: Path, jobs: str, version: str = "26.05.5") -> None:
    """What the arbiter notes of the jobs whose SiteFactor it writes, and Slurm's configuration."""
    (folder / "spool").mkdir()
    (folder / "spool/ordered").write_text(jobs)
    (folder / "config").write_text(f"PriorityType = priority/multifactor\nSLURM_VERSION = {version}\n")


def test_whoever_was_ordered_alone_has_no_site_factor_left(tmp_path: Path) -> None:
    ordered(tmp_path, "7.abc\n9\n10_3\n10_4\n10_8\n12\n13.abe\n15\n16_2\n")
    runs = GIVEN.replace("8|PENDING", "13|RUNNING").replace("horae=abd", "note,horae=x horae=abe")
    rows = [PARKED, GIVEN, untagged("9"), untagged("10_[3-4,8%2]"), untagged("11"), untagged("12", "RUNNING"), runs]
    rows += [untagged("14_[1,3-4]"), untagged("15", "COMPLETED"), untagged("16_2", "SUSPENDED")]
    assert handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF") == (
        0,
        [
            "update jobid=7 StartTime=now SiteFactor=0",
            "update jobid=8 StartTime=uts9999999999",  # a factor that it has is not ours
            "update jobid=9 SiteFactor=0",
            "update jobid=10_[3-4,8] SiteFactor=0",
            "update jobid=12 SiteFactor=0",
            "update jobid=13 SiteFactor=0",
            "update jobid=16_2 SiteFactor=0",
        ],
    )


def test_without_the_note_whoever_waits_for_us_is_taken_to_be_ordered(tmp_path: Path) -> None:
    ordered(tmp_path, "")
    (tmp_path / "spool/ordered").unlink()
    rows = f"{PARKED}\n{untagged('9')}"
    assert handed_back(tmp_path, f"cat <<'EOF'\n{rows}\nEOF") == (0, ["update jobid=7 StartTime=now SiteFactor=0"])


def test_tasks_that_follow_from_gpus_are_said_with_it_where_an_update_loses_them(tmp_path: Path) -> None:
    shown = "JobId={0} JobName=x\n   JobState={1} Reason=None\n   NumNodes=1 NumCPUs=8 NumTasks={2} CPUs/Task=1\n"
    by_gpu, by_task = "   NtasksPerTRES=1\n", "   TresPerNode=gres/gpu:2\n   TresPerTask=cpu=1,gres/gpu=1\n"
    ordered(tmp_path, "9\n10_3\n11\n12\n", "24.11.5")
    (tmp_path / "job9").write_text(shown.format(9, "PENDING", 8) + by_task)
    running = shown.format(21, "RUNNING", 77) + by_gpu
    (tmp_path / "job10_3").write_text(f"{running}\n{shown.format(22, 'PENDING', 4)}{by_gpu}")
    (tmp_path / "job11").write_text(shown.format(11, "PENDING", 5))
    rows = [untagged("9"), untagged("10_[3-4]"), untagged("11"), untagged("12", "RUNNING")]
    assert handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF") == (
        0,
        [
            "update jobid=9 SiteFactor=0 NumTasks=8",
            "update jobid=10_[3-4] SiteFactor=0 NumTasks=4",
            "update jobid=11 SiteFactor=0",
            "update jobid=12 SiteFactor=0",
        ],
    )


def test_what_slurm_says_of_an_update_that_it_makes_is_no_failure(tmp_path: Path) -> None:
    """26.05, of a job that its partition cannot hold now; anything else is looked at again, and told at last."""
    (tmp_path / "says").write_text("Requested partition configuration not available now for job 7\n")
    told = ["update jobid=7 StartTime=now"]
    assert handed_back(tmp_path, f"echo '{PARKED}'") == (0, told)
    (tmp_path / "again").mkdir()
    (tmp_path / "again/says").write_text("Access/permission denied for job 7\n")
    assert handed_back(tmp_path / "again", f"echo '{PARKED}'") == (1, told * 3)


def test_an_administrators_hold_of_an_elastic_job_that_has_run_is_left(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/holds").write_text("3.3\n4.4\n")
    reasons = [
        "JobHeldUser",
        "JobHeldAdmin",
        "JobHeldAdmin",
        "job requeued in held state",
        "job requeued in held state",
    ]
    rows = [f"{at}|PENDING|0|1|1|1|gpu|horae={at},gpus=1,nodes=1|{why}|" for at, why in enumerate(reasons, start=1)]
    code, told = handed_back(tmp_path, "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF")
    assert code == 0
    assert [line for line in told if line.startswith("release")] == ["release 1", "release 3", "release 4"]
