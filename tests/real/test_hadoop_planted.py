"""Folders that others plant, names that they take, documents that they change: on a real HDFS with permissions on."""

from __future__ import annotations

import itertools
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from horae import spec_json
from horae.port import FixConfiguration, JobState, PortError, attend
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.real import books
from tests.real.hadoop import (
    hadoop_342,  # noqa: F401 - a fixture
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.jobs.record import Phase, Record, encode_kept, gate_document
from yarn_bridge.jobs.shapes import service_name
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]

SPEC = JobSpec("job", ("true",), GpuRange(1, 1, 4), owner="alice", checkpoint="/ckpt", grace_s=5.0)
_numbers = itertools.count(1)


@pytest.fixture
def options(hadoop_342: PrivateHadoop) -> dict[str, object]:  # noqa: F811
    return {**hadoop_342.facts(), "folder": f"/user/horae/planted-{os.getpid()}-{next(_numbers)}"}


@pytest.fixture
def port(options: dict[str, object]) -> Iterator[YarnCluster]:
    made = YarnCluster(parse_options(options))
    made.claim("the arbiter")
    yield made
    books.check(made.manager)
    made.close()


@pytest.fixture
def mallory(options: dict[str, object]) -> Hdfs:
    known = parse_options(options)
    whole = Hdfs(known.access(known.webhdfs))
    return whole.as_user("mallory")


def plant(hdfs: Hdfs, folder: str, job: str, owner: str) -> None:
    """A job's folder as it was before the bridge kept its own account, that says what its maker likes."""
    record = Record(job, owner, service_name(job), 1.0, phase=Phase.FORMING, granted=1, allocation=(("n1", 4),))
    gate = json.dumps({**gate_document(record), "record": asdict(record)}).encode()
    hdfs.make_folder(folder, "777")
    hdfs.keep_document(f"{folder}/gate", gate, folder)
    hdfs.keep_document(f"{folder}/spec", spec_json.encode(replace(SPEC, owner=owner)), folder)


def test_nobody_but_the_bridge_makes_renames_or_reads_what_it_believes(port: YarnCluster, mallory: Hdfs) -> None:
    port.submit("job", SPEC)
    jobs, root = port.files.jobs, port.files.root
    tries = {
        "plants a folder": lambda: mallory.make_folder(f"{jobs}/evil", "777"),
        "takes the claim": lambda: mallory.keep_document(f"{jobs}/.claim", b"mine", jobs),
        "moves a job away": lambda: mallory.rename(f"{jobs}/job", f"{jobs}/other"),
        "removes a job": lambda: mallory.delete(f"{jobs}/job"),
        "reads what the bridge keeps": lambda: mallory.entries(f"{root}/kept"),
        "writes what the bridge keeps": lambda: mallory.overwrite_document(f"{root}/kept/records/job", b"{}"),
        "changes another's gate": lambda: mallory.overwrite_document(f"{jobs}/job/gate", b"{}"),
        "registers with another's job": lambda: mallory.keep_document(f"{jobs}/job/members/c1", b"{}", f"{jobs}/job"),
        "has the SDK replaced": lambda: mallory.write(f"{root}/lib/horae.pyz", b"x"),
    }  # fmt: skip
    for what, attempt in tries.items():
        with pytest.raises(PortError):
            attempt()
            pytest.fail(f"mallory {what}")
    seen = attend(port)
    assert ([each.id for each in seen.jobs], seen.claim, seen.notes) == (["job"], "the arbiter", ())
    entries = port.files.entries()
    assert (entries["job"].owner, set(entries)) == ("alice", {"job", ".claim"}), "and no scaffold stays"


def test_a_root_of_the_version_before_is_closed_and_only_what_agrees_is_taken_over(
    options: dict[str, object], mallory: Hdfs
) -> None:
    """There `jobs/` was open to everybody, and in a sticky folder HDFS lets a rename replace what is another's."""
    known = parse_options(options)
    horae = Hdfs(known.access(known.webhdfs), dict(known.hdfs_names))
    jobs = f"{known.root}/jobs"
    horae.make_folder(known.root, "755")
    horae.make_folder(jobs, "1777")
    horae.set_permission(jobs, "1777")
    horae.keep_document(f"{jobs}/.claim", b"the arbiter", jobs)
    mallory.keep_document(f"{jobs}/.claim", b"mallory's", jobs)
    assert horae.document(f"{jobs}/.claim") == b"mallory's", "why it is closed now"
    plant(horae.as_user("alice"), f"{jobs}/hers", "hers", "alice")
    plant(mallory, f"{jobs}/forged", "forged", "alice")
    port = YarnCluster(parse_options(options))
    port.claim("the arbiter")
    with pytest.raises(PortError):
        plant(mallory, f"{jobs}/late", "late", "mallory")
    assert horae.status(jobs).permission == "755"  # type: ignore[union-attr]
    seen = attend(port)
    assert ([each.id for each in seen.jobs], seen.claim) == (["hers"], "the arbiter")
    assert any("forged was not handed in to Horae" in note for note in seen.notes)
    port.cancel("hers")
    port.close()


def test_a_root_that_somebody_made_first_is_not_believed(options: dict[str, object], mallory: Hdfs) -> None:
    """With a job of alice's in it that holds GPUs, and open to the bridge so that it would not notice."""
    known = parse_options(options)
    horae = Hdfs(known.access(known.webhdfs), dict(known.hdfs_names))
    above = f"{known.root}-shared"
    horae.make_folder(above, "1777")
    horae.set_permission(above, "1777")
    root = f"{above}/horae"
    record = Record("hers", "alice", service_name("hers"), 1.0, phase=Phase.FORMING, granted=1, allocation=(("n1", 4),))
    for name, mode in (
        ("", "777"),
        ("/kept", "777"),
        ("/kept/records", "777"),
        ("/kept/specs", "777"),
        ("/jobs", "777"),
    ):
        mallory.make_folder(root + name, mode)
        mallory.set_permission(root + name, mode)
    mallory.keep_document(f"{root}/kept/records/hers", encode_kept(record), f"{root}/kept/records")
    mallory.keep_document(f"{root}/kept/specs/hers", spec_json.encode(SPEC), f"{root}/kept/specs")
    horae.as_user("alice").make_folder(f"{root}/jobs/hers", "755")
    port = YarnCluster(parse_options({**options, "folder": root}))
    for asked in (lambda: port.claim("the arbiter"), port.observe):
        with pytest.raises(
            FixConfiguration, match=f"{root} is mallory's, and Horae is horae: nothing in it is believed"
        ):
            asked()
    assert not port.manager.apps(states=("NEW", "ACCEPTED", "RUNNING"))
    port.close()

    # In a folder of everybody's where nobody had been before the bridge is at home, as long as it is sticky.
    other = YarnCluster(parse_options({**options, "folder": f"{above}/second"}))
    other.claim("the arbiter")
    other.submit("job", SPEC)
    assert [each.id for each in attend(other).jobs] == ["job"]
    other.close()
    horae.set_permission(above, "777")
    late = YarnCluster(parse_options({**options, "folder": f"{above}/second"}))
    with pytest.raises(FixConfiguration, match=f"everybody may write to {above}"):
        late.observe()
    late.close()


def test_what_an_owner_writes_into_his_own_folder_changes_nothing_that_he_holds(
    port: YarnCluster, options: dict[str, object]
) -> None:
    port.submit("job", SPEC)
    known = parse_options(options)
    whole = Hdfs(known.access(known.webhdfs), dict(known.hdfs_names))
    alice, folder = whole.as_user("alice"), port.files.folder("job")
    plant(alice, folder, "job", "bob")
    for name in ("members", "acks"):
        alice.make_folder(f"{folder}/{name}")
    alice.keep_document(f"{folder}/members/{secrets.token_hex(4)}", b"[" * 100_000, folder)
    alice.keep_document(f"{folder}/acks/x", b'{"epoch": 1e999}', folder)
    fresh = YarnCluster(parse_options(options))
    for each in (port, fresh):
        (job,) = each.observe().jobs
        assert (job.state, job.spec, job.allocation) == (JobState.QUEUED, SPEC, {})
    fresh.close()
