"""What users write, on real daemons: names, comments, accounts and paths that attack what reads them.

The private 22.05 in every run; the same on 24.11 and 26.05 in soak, where users are others than Horae's account.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from horae.port import FixConfiguration, JobState, Observation, PortError, attend
from slurm_plugin import connect
from slurm_plugin.adapter import SlurmCluster
from tests.contract.waiting import patiently
from tests.real.slurm import (
    Containers,
    Private,
    RealSlurm,
    clear_partition,
    fresh_partition,
    private_slurm,  # noqa: F401
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
)

pytestmark = pytest.mark.real

#: Fields of a record between the marks of an earlier release: root's, running, with an output of root's
_GHOST = (
    "4242 4242 RUNNING None 0 0 n1 gres:gpu:1 - 1 1 - c horae=abc123,gpus=1 root 0 - - @PARTITION@ n / /x /etc/shadow "
    "- 1 1 1 - - 1 1 0 -"
).replace(" ", "\x1f")
HOSTILE = {
    "a field": {"--comment": "a\x1fb", "--job-name": "x\x1fy"},
    "a record": {"--comment": "x\x1e\n" + _GHOST + "\x1e\nx", "--job-name": "x\x1ey"},
    "a record in the name": {"--job-name": "x\x1e\n" + _GHOST + "\x1e\nx"},
    "lines": {"--comment": "a\nJobId=1 UserId=root(0)\n   Partition=x", "--job-name": "\n\n"},
    "an escape": {"--job-name": "\x1b]0;PWNED\x07\x1b[2J", "--comment": "\x9b1m\u202e"},
    "a number": {"--comment": "horae:min=²"},
    "a long number": {"--comment": "horae:max=" + "9" * 900},
    "no number": {"--comment": "horae:iters=nan,grace=1e999"},
    "a path": {"--output": "/tmp/%99999999j%5000j", "--comment": "horae:ckpt=/\x7f"},
    "a long name": {"--job-name": "n" * 900},
    "a mark of scontrol": {"--comment": "horaemark1x0\nscontrol: horaemark2x0"},
}


class Site:
    def __init__(self, cluster: RealSlurm, memory: Path) -> None:
        self.cluster, self.partition = cluster, fresh_partition(cluster)
        self.port: SlurmCluster = connect(
            {**cluster.options(self.partition), "state": str(memory), "hold": False, "blocked_after_s": 12.0}
        )

    def sbatch(self, *options: str, script: str = "#!/bin/sh\nsleep 600\n") -> str:
        return self.cluster.submit(script, f"--partition={self.partition}", "--gres=gpu:1", "--hold", *options)

    def observe(self) -> Observation:
        return patiently(lambda: attend(self.port))

    def end(self) -> None:
        clear_partition(self.cluster, self.partition)
        self.port.close()


@pytest.fixture
def site(private_slurm: Private, tmp_path: Path) -> Iterator[Site]:  # noqa: F811
    made = Site(private_slurm, tmp_path / "memory")
    yield made
    made.end()


def test_no_users_words_make_a_job_or_hide_one(site: Site) -> None:
    hide_and_make(site)


@pytest.mark.soak
@pytest.mark.parametrize("release", ["slurm_2411", "slurm_2605"])
def test_no_users_words_make_a_job_or_hide_one_elsewhere(
    release: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cluster: Containers = request.getfixturevalue(release)
    made = Site(cluster, tmp_path / "memory")
    try:
        hide_and_make(made)
    finally:
        made.end()


def hide_and_make(site: Site) -> None:
    """Each hostile job is itself and no other; a good one beside them is untouched."""
    good = site.sbatch("--comment=horae:min=1,max=4")
    sent = {}
    for name, words in HOSTILE.items():
        options = [f"{option}={text.replace('@PARTITION@', site.partition)}" for option, text in words.items()]
        sent[name] = site.sbatch(*options)
    seen = site.observe()
    jobs = {job.id: job for job in seen.jobs}
    assert set(jobs) == {good, *sent.values()}, "none more, none less"
    owner = jobs[good].spec.owner if jobs[good].spec else ""
    for job in jobs.values():
        assert job.state is JobState.QUEUED
        assert job.spec is not None
        assert job.spec.owner == owner
        assert all(text.isprintable() for text in (job.spec.name, job.spec.cwd, *job.spec.command))
    assert jobs[good].spec is not None
    assert jobs[good].spec.elastic
    for name in ("a number", "a long number", "no number", "a path"):
        spec = jobs[sent[name]].spec
        assert spec is not None
        assert not spec.elastic, name
        assert any(note.startswith(f"{sent[name]}:") and "taken as rigid" in note for note in seen.notes), name
    for job_id in sent.values():  # an output that is not there, or nobody's
        with suppress(FixConfiguration):
            assert site.port.read_log(job_id, 0).data == b""


def test_a_comment_that_is_changed_while_the_job_runs_changes_no_other_field(site: Site) -> None:
    job = site.sbatch()
    ghost = "x\x1e\n" + _GHOST.replace("@PARTITION@", site.partition) + "\x1e\nx"
    for field in (f"comment={ghost}", f"jobname={ghost}", "TresPerNode=gpu\x1fx\x1e\n"):
        site.cluster.run("scontrol", "update", f"jobid={job}", field)
        jobs = site.observe().jobs
        assert {each.id for each in jobs} <= {job}


@pytest.mark.root
def test_no_output_of_a_job_is_another_users_file(site: Site, tmp_path: Path) -> None:
    """Named, linked, hard-linked, swapped for a pipe: what is read is the job's owner's own plain file, or nothing."""
    secret = tmp_path / "secret"
    secret.write_text("root:$6$SECRET")
    os.chown(secret, 12345, 12345)
    secret.chmod(0o600)
    link, hard, pipe = tmp_path / "link", tmp_path / "hard", tmp_path / "pipe"
    link.symlink_to(secret)
    os.link(secret, hard)
    os.mkfifo(pipe)
    own = tmp_path / "own"
    own.write_text("step 1\n")
    for path in (secret, link, hard, pipe, Path("/dev/zero"), tmp_path):
        job = site.sbatch(f"--output={path}")
        site.observe()
        with pytest.raises(FixConfiguration) as raised:
            site.port.read_log(job, 0)
        assert "SECRET" not in str(raised.value)
    job = site.sbatch(f"--output={own}")
    site.observe()
    assert site.port.read_log(job, 0).data == b"step 1\n"


@pytest.mark.root
def test_a_jobs_folder_gives_away_no_file_that_its_owner_does_not_own(site: Site, tmp_path: Path) -> None:
    """The folder is the owner's: he makes of each name in it a link, a folder, a pipe, between two starts."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    spool = site.port.spool
    spool.prepare()
    for name in ("epoch", "slurm.json", "stop", "cancel", "slurm.exec", "state.json", "output.log"):
        job = f"7.{name.replace('.', '')}"
        folder = Path(spool.folder(job))
        spool.grant(job, 12345, 1, 0)
        assert folder.stat().st_uid == 12345
        for trick in ("link", "folder", "pipe", "hard"):
            path = folder / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            if trick == "link":
                path.symlink_to(secret)
            elif trick == "hard":
                os.link(secret, path)
            elif trick == "folder":
                path.mkdir()
            else:
                os.mkfifo(path)
            with suppress(PortError):
                spool.grant(job, 12345, 2, 1)
            spool.ask_to_stop(job, 2, 10.0, 0.0)
            spool.ask_to_end(job)
            assert spool.account(job, 12345).checkpoint is None
            assert spool.newest_checkpoint(job, 12345) is None
            found = secret.stat()
            assert (found.st_uid, found.st_mode & 0o777) == (os.getuid(), 0o600)
            assert secret.read_text() == "secret"
            others = [each for each in folder.iterdir() if each.is_file() and not each.is_symlink()]
            assert not any(each.stat().st_mode & 0o002 for each in others)
        shutil.rmtree(folder)


def test_slurm_has_no_way_for_a_user_to_write_our_tag(site: Site) -> None:
    """What the module writes once is the site's administrators' to change: users' words never stand there."""
    job = site.sbatch("--comment=horae=abc,gpus=64")
    seen = {each.id: each for each in site.observe().jobs}
    assert set(seen) == {job}, "no nonce was taken from the comment"
    assert json.loads(json.dumps(seen[job].spec.gpus.max if seen[job].spec else 0)) == 1
