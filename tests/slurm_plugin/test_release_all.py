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


def handed_back(folder: Path, squeue: str) -> tuple[int, list[str]]:
    """The script's exit code, and what scontrol was told. It ends with 1 at a blank line, as the real one does, and in
    silence; and where there is a file `starts` in the folder, which it takes away."""
    commands, told, starts = folder / "bin", folder / "told", folder / "starts"
    commands.mkdir()
    scontrol = f'[ "$1" = show ] || {{ cat >> {told}; ! rm {starts} 2>/dev/null && ! grep -qx "" {told}; }}'
    for name, text in {"squeue": squeue, "scontrol": scontrol}.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", SCRIPT, folder / "spool"], env=env, capture_output=True, text=True, check=False)
    return done.returncode, [line for line in (told.read_text() if told.exists() else "").splitlines() if line]


def test_each_job_of_ours_is_given_its_time_again(tmp_path: Path) -> None:
    rows = "\n".join((PARKED, GIVEN, STRANGER))
    assert handed_back(tmp_path, f"cat <<'EOF'\n{rows}\nEOF") == (
        0,
        ["update jobid=7 StartTime=now", "update jobid=8 StartTime=uts9999999999"],
    )


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


def test_where_nothing_waits_there_is_nothing_to_do_and_all_is_well(tmp_path: Path) -> None:
    assert handed_back(tmp_path, f"echo '{STRANGER}'") == (0, [])


def test_a_job_that_starts_between_the_look_and_its_update_is_not_looked_for_again(tmp_path: Path) -> None:
    (tmp_path / "starts").touch()
    runs = PARKED.replace("PENDING", "RUNNING")
    squeue = f"[ -e {tmp_path}/starts ] && echo '{PARKED}' || echo '{runs}'"
    assert handed_back(tmp_path, squeue) == (0, ["update jobid=7 StartTime=now"])
