"""Under attack, the kernel's own word: no job folder is touched by a path or through a link by anybody who is root."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.horae.local import trace
from tests.horae.local.attack_day import ACCOUNT, ANN, BOB, CHANGES, Day, serving
from tests.horae.local.trace import Call
from tests.waiting import eventually

pytestmark = pytest.mark.root


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="horae-trace-"))
    yield made
    shutil.rmtree(made)


def asked(day: Day, job: str, verb: str) -> bool:
    return any(e["data"]["verb"] == verb for e in day.operator.history(job=job) if e["kind"] == "intent")


@pytest.mark.parametrize("account", ["", ACCOUNT])
def test_no_job_folder_is_touched_by_a_path_or_through_a_link(folder: Path, account: str) -> None:
    into = folder / "trace"
    with serving(folder, account) as day:
        jobs = folder / "local" / "jobs"
        hers = day.submits(ANN, command=["/bin/sleep", "600"])
        bobs = day.submits(BOB, command=["/bin/sleep", "600"], gpus=2)
        eventually(lambda: all(day.operator.job(job)["state"] == "running" for job in (hers, bobs)))
        waits = day.submits(ANN, command=["/bin/sleep", "600"], gpus=2)
        eventually((jobs / waits).exists)
        helpers = [day.helper] if account else []
        with trace.traced(into, day.process.pid, *helpers):
            changing = [day.runs(ANN, CHANGES, jobs / job) for job in (hers, waits)]
            try:
                his = day.submits(BOB, command=["/bin/sh", "-c", "echo works; sleep 600"])
                eventually(lambda: day.operator.job(his)["state"] == "running")
                day.operator.cancel(bobs)
                eventually(lambda: asked(day, waits, "start"))
                for job in (hers, his):
                    assert day.calls(0, "GET", f"/v1/jobs/{job}/log")[0] in (200, 503)
                    day.operator.cancel(job)
                # By then she may have ended it herself: a file `cancel` in a job's own folder does.
                eventually(lambda: asked(day, hers, "cancel") or day.operator.job(hers)["ended"])
                eventually(lambda: day.operator.job(his)["state"] == "cancelled")
                assert [process.poll() for process in changing] == [None, None], "they change things all the time"
            finally:
                for process in changing:
                    process.kill()
                    process.wait()
        seen = [call for call in trace.calls(into) if trace.touches(call, str(jobs))]
        assert [(call, how) for call in seen if (how := trace.wrong(call, str(jobs)))] == []
        named = {name for call in seen for _, name in trace.touches(call, str(jobs))}
        assert named >= {hers, waits, his, "state.json", "epoch", "output.log"}
        if account:
            threads = {int(task.name) for task in Path(f"/proc/{day.process.pid}/task").iterdir()}
            theirs = {name for call in seen if call.pid in threads for _, name in trace.touches(call, str(jobs))}
            assert theirs <= {str(jobs), ""}, "the arbiter itself reaches into no job's folder"


@pytest.mark.parametrize(
    ("name", "text", "how"),
    [
        ("openat", 'AT_FDCWD</>, "/s/jobs/1/state.json", O_RDONLY|O_NOFOLLOW', "by a path"),
        ("openat", '5</s/jobs/1>, "state.json", O_RDONLY', "through a link, if there is one"),
        ("openat", '5</s/jobs/1>, "a/b", O_RDONLY|O_NOFOLLOW', "by a path below a descriptor"),
        ("openat", '5</s/jobs>, "../books", O_RDONLY|O_NOFOLLOW', "by a path below a descriptor"),
        ("chown", '"/s/jobs/1/spec.json", 1, 1', "by a path"),
        ("fchownat", '5</s/jobs/1>, "spec.json", 1, 1, 0', "through a link, if there is one"),
        ("newfstatat", '5</s/jobs/1>, "x", {st_mode=S_IFREG|0644, ...}, 0', "through a link, if there is one"),
        ("rename", '"/s/jobs/.1.x", "/s/jobs/1"', "by a path"),
        ("openat", '5</s/jobs/1>, "state.json", O_RDONLY|O_NOFOLLOW', ""),
        ("newfstatat", '5</s/jobs/1>, "", {st_mode=S_IFDIR|0755, ...}, AT_EMPTY_PATH', ""),
        ("renameat", '5</s/jobs/1>, ".x", 5</s/jobs/1>, "x"', ""),
        ("openat", 'AT_FDCWD</>, "/s/jobs", O_RDONLY|O_DIRECTORY', ""),
        ("openat", 'AT_FDCWD</>, "/s/books/1.json", O_RDONLY', ""),
        ("execve", '"/usr/bin/python3", ["python3", "--job", "/s/jobs/1"], 0x1 /* 3 vars */', ""),
    ],
)  # fmt: skip
def test_what_may_be_touched_how(name: str, text: str, how: str) -> None:
    assert trace.wrong(Call(1, name, text, "3"), "/s/jobs") == how
