"""Whose a job is, what it holds and where it runs is what the bridge kept, whatever its folder says."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae import spec_json
from horae.elastic.stores import attributes, checkpoints
from horae.elastic.stores.store import FolderStore
from horae.port import FixConfiguration, JobState, Never, attend
from horae.untrusted import Unbelievable
from tests.yarn_bridge.fake_hdfs import World
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.jobs.record import Phase, Record, gate_document
from yarn_bridge.jobs.shapes import service_name
from yarn_bridge.jobs.user_files import Aside, Newest, ack, gate_record, member, old_spec
from yarn_bridge.options import parse_options

FOLDER = "/hdfs/jobs"
ALICE = replace(SPEC, owner="alice")


def planted(site: Site, job: str, by: str, owner: str, **changes: Any) -> None:
    """A folder as the version before would have made it, by whoever could write to `jobs/` then."""
    record = replace(Record(job, owner, service_name(job), 1.0, since_s=1.0), **changes)
    gate = {**gate_document(record), "record": asdict(record)}
    site.hdfs.files |= {
        f"{FOLDER}/{job}/gate": json.dumps(gate).encode(),
        f"{FOLDER}/{job}/spec": spec_json.encode(replace(SPEC, owner=owner)),
        f"{FOLDER}/{job}/launch.sh": b"id > /tmp/mine",
    }
    site.hdfs.folders.add(f"{FOLDER}/{job}")
    site.hdfs.owners[f"{FOLDER}/{job}"] = by


def before_the_bridge(site: Site) -> None:
    """As if nothing had been kept yet."""
    for name in [name for name in site.hdfs.files if "/kept" in name]:
        del site.hdfs.files[name]
    site.hdfs.folders = {name for name in site.hdfs.folders if "/kept" not in name}


def test_a_planted_folder_is_nobodys_job(site: Site) -> None:
    site.port.submit("good", ALICE)
    for owner in ("bob", "mallory"):
        planted(site, f"as-{owner}", "mallory", owner, phase=Phase.FORMING, granted=1, allocation=(("n1", 4),))
    seen = attend(site.port)
    assert [each.id for each in seen.jobs] == ["good"]
    assert sum("was not handed in" in note for note in seen.notes) == 2
    with pytest.raises(Never):
        site.port.start("as-bob", {"n1": 1}, 1)
    assert site.calls["create"] == site.calls["flex"] == 0


def test_an_owner_who_changes_his_folder_gets_nothing_by_it(site: Site) -> None:
    """More GPUs, another's name, another queue, no end of time: neither now nor at a new arbiter's first look."""
    site.port.submit("job", ALICE)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    held = site.look().allocation
    for _ in range(2):
        planted(site, "job", "alice", "bob", phase=Phase.FORMING, granted=2, allocation=(("n1", 4), ("n2", 4)))
        greedy = replace(SPEC, owner="root", extra={"yarn.queue": "root.prod"}, grace_s=1e9, retries=10**6)
        site.hdfs.files[f"{FOLDER}/job/spec"] = spec_json.encode(greedy)
        site.hdfs._touch(f"{FOLDER}/job/x")
        seen = site.look()
        assert (seen.state, seen.allocation, seen.spec) == (JobState.RUNNING, held, ALICE)
        site.port = site.connect()
    assert site.gate()["state"] == "open", "and the gate says again what the bridge wants"
    assert [each["name"] for each in site.gate()["members"]]


def test_a_folder_that_became_anothers_is_left_alone_until_it_is_mended(site: Site) -> None:
    site.port.submit("job", ALICE)
    site.port.submit("other", ALICE)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.hdfs.owners[f"{FOLDER}/job"] = "mallory"
    seen = attend(site.port)
    assert {each.id for each in seen.jobs} == {"job", "other"}, "it is not gone"
    assert any("mallory's folder now, and the job is alice's" in note for note in seen.notes)
    with pytest.raises(FixConfiguration, match="chown alice"):
        site.port.cancel("job")
    site.port.start("other", {"n2": 1}, 1)
    site.hdfs.owners[f"{FOLDER}/job"] = "alice"
    attend(site.port)
    site.port.cancel("job")
    assert site.look().state is JobState.CANCELLED


def test_a_name_that_somebody_took_before_its_owner_could_is_refused(site: Site) -> None:
    made = site.hdfs.make_folder

    def raced(path: str, permission: str | None = None) -> None:
        made(path, permission)
        if path.endswith("/job"):
            site.hdfs.owners[path] = "mallory"

    site.hdfs.make_folder = raced  # type: ignore[method-assign]
    with pytest.raises(Never, match="would be mallory's, not alice's"):
        site.port.submit("job", ALICE)
    assert not [name for name in site.hdfs.files if name.startswith(FOLDER) and "claim" not in name]


def test_folders_of_the_version_before_are_taken_over_once_and_only_their_owners(site: Site) -> None:
    planted(site, "old", "alice", "alice", epoch=3, granted=3, outcome=JobState.STOPPED)
    planted(site, "forged", "mallory", "bob")
    planted(site, "renamed", "alice", "alice", service="h-x")
    planted(site, "claims-another", "alice", "alice")
    site.hdfs.files[f"{FOLDER}/claims-another/spec"] = spec_json.encode(replace(SPEC, owner="bob"))
    site.hdfs.files[f"{FOLDER}/renamed/gate"] = site.hdfs.files[f"{FOLDER}/old/gate"]
    before_the_bridge(site)
    site.port = site.connect()
    planted(site, "late", "alice", "alice")
    seen = attend(site.port)
    assert [(each.id, each.state, each.epoch) for each in seen.jobs] == [("old", JobState.STOPPED, 3)]
    assert len(seen.notes) == 4
    assert seen.jobs[0].spec is not None and seen.jobs[0].spec.owner == "alice"


def test_what_a_broken_submission_left_is_taken_away_by_the_next_arbiter(site: Site) -> None:
    site.hdfs.files[f"{FOLDER}/.new-1/job/gate"] = b"{}"
    site.hdfs.files[f"{FOLDER}/.new-2/job/gate"] = b"{}"
    site.hdfs.owners[f"{FOLDER}/.new-1/job"] = "alice"
    site.hdfs.times[f"{FOLDER}/.new-2"] = 4900.0
    site.now_s = 5000.0
    site.port = site.connect()
    assert [name for name in site.hdfs.files if ".new-" in name] == [f"{FOLDER}/.new-2/job/gate"]
    assert attend(site.port).notes == ()


def test_a_member_of_one_job_says_nothing_about_anothers(site: Site) -> None:
    """Containers' names are no secret: mallory writes down alice's before her worker does."""
    site.port.submit("evil", replace(SPEC, owner="mallory"))
    site.port.submit("job", ALICE)
    site.port.start("evil", {"n2": 1}, 1)
    site.look("evil")
    for number in range(1, 9):
        site.tell(f"members/c{number}", {"host": "of-mallory", "port": 1}, "evil")
    site.look("evil")
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    service = site.yarn.services[site.port.files.service_name("job")]
    (container,) = [each.container for part in service.components.values() for each in part.instances]
    site.tell(f"members/{container}", {"host": "of-alice", "port": 21000})
    assert site.look().state is JobState.RUNNING
    assert site.gate()["members"] == [{"name": container, "gpus": 1, "host": "of-alice"}]


HOSTILE: tuple[bytes, ...] = (
    b"", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"{", b"[" * 100_000, b'{"a":' * 100_000, b'{"epoch": 1e999}',
    b'{"epoch": ' + b"9" * 5000 + b"}", b'{"epoch": NaN}', b'{"host": {"a": 1}, "port": 1}',
    b'{"host": "h", "port": -1}', b'{"host": "h", "port": 1e300}', b'{"host": "a b\\u202e", "port": 1}',
    b'{"host": "\\ud800", "port": 1}', b'{"epoch": true, "state": "x", "exit_code": 0, "time_s": 0}',
    b'{"epoch": 1, "state": [], "exit_code": 0, "time_s": 0}',
    b'{"epoch": 1, "state": "failed", "exit_code": 0, "time_s": 0, "checkpoint": {"epoch": 1, "step": Infinity}}',
    b'{"epoch": 1, "state": "failed", "exit_code": 0, "time_s": 0, "checkpoint": 5}',
    b'{"record": {"phase": "open"}}', b'{"record": 5}', b'{"record": {"workers": [[]], "phase": "idle"}}',
    b" " * (300 << 10),
)  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_what_cannot_be_believed_is_nothing(data: bytes) -> None:
    assert member(data, "c1") is None
    assert ack(data, "c1") is None
    with pytest.raises(Unbelievable):
        gate_record(data, "gate")
    with pytest.raises(Unbelievable):
        old_spec(data, "spec")


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["host", "port", "epoch", "state", "exit_code", "time_s", "checkpoint", "step", "record",
                         "phase", "outcome", "workers", "next", "name", "gpus", "throughput"]), inner, max_size=8),
    max_leaves=24,
))  # fmt: skip
def test_no_document_of_a_user_raises_more_than_that_it_is_not_believed(value: object) -> None:
    data = json.dumps(value).encode()
    for decoded in (member(data, "c1"), ack(data, "c1")):
        assert decoded is None or decoded == decoded.__class__(**asdict(decoded)), "finite, so equal to itself"
    for read in (gate_record, old_spec):
        try:
            read(data, "x")
        except Unbelievable:
            continue


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_one_jobs_documents_keep_nobody_else_from_running(site: Site, data: bytes) -> None:
    for name in ("job", "other"):
        site.port.submit(name, ALICE)
        site.port.start(name, {"n1": 1}, 1)
    site.look()
    for service in site.yarn.services.values():
        (container,) = [each.container for part in service.components.values() for each in part.instances]
        job = "job" if service.name == site.port.files.service_name("job") else "other"
        site.tell(f"members/{container}", {"host": "h", "port": 1}, job)
        if job == "job":
            for path in (f"members/{container}", f"acks/{container}", "gate", "log/²", "log/00000001"):
                site.hdfs.files[f"{FOLDER}/job/{path}"] = data
    site.look()
    assert site.look("other").state is JobState.RUNNING
    site.port.checkpoint_and_stop("other", 1.0)
    assert site.look("other").state is JobState.STOPPING


def test_a_thousand_members_cost_a_few_reads(site: Site) -> None:
    site.port.submit("job", ALICE)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.hdfs.files |= {f"{FOLDER}/job/members/x{number}": b"{}" for number in range(1000)}
    site.hdfs._touch(f"{FOLDER}/job/x")
    site.calls.clear()
    attend(site.port)
    assert site.calls["read"] < 50


def test_a_worker_that_tells_its_end_for_ever_is_remembered_once(site: Site) -> None:
    site.port.submit("job", ALICE)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    names = site.register()
    site.look()
    record = site.port.files.record("job")
    assert record is not None
    for code in range(50):
        site.acknowledge(names, 1, "running", code)
        (told,) = site.port.files.acks(record).values()
        assert told.exit_code == code
    assert len(site.port.files._theirs._acks) == 1


def test_a_listing_of_others_is_asked_for_in_pieces_and_ends() -> None:
    with ExitStack() as stack:
        world = World(stack)
        world.folders |= {f"/user/alice/{number}" for number in range(5)}
        hdfs = world.hdfs()
        assert [each.name for each in hdfs.some("/user/alice", 5)] == ["0", "1", "2", "3", "4"]
        asked = len(world.namenode.asked)
        with pytest.raises(Unbelievable, match="more than 4 entries"):
            hdfs.some("/user/alice", 4)
        assert len(world.namenode.asked) == asked + 1
        assert hdfs.some("/user/nobody", 4) == []


def test_an_attribute_whose_number_is_none_is_not_a_part_of_the_document() -> None:
    answer = {"XAttrs": [{"name": "user.horae.²", "value": "0sQQ=="}, {"name": "user.horae.0", "value": "0sQg=="}]}
    assert attributes.join(answer) == b"B"


def test_no_checkpoint_address_is_followed_to_another_host(site: Site) -> None:
    """Its path is looked up in the cluster's own HDFS, whatever host it names; other schemes nowhere."""
    record = Record("job", "alice", "s", 0.0)
    for url in ("webhdfs://127.0.0.1:1/x", "hdfs://evil.invalid:9000/x", "swebhdfs://10.255.255.1/x"):
        site.calls.clear()
        assert site.port.files.newest(record, replace(SPEC, checkpoint=url)) is None
        assert site.calls["entries"] > 0
    for url in ("s3://evil/x", "http://127.0.0.1:1/x", "file:///etc", "../x", ""):
        site.calls.clear()
        assert site.port.files.newest(record, replace(SPEC, checkpoint=url)) is None
        assert not site.calls


def test_a_mounted_checkpoint_is_looked_up_where_it_is_and_another_nameservices_nowhere(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the arbiter's own Hadoop configuration."""
    table = "fs.viewfs.mounttable.shop.link."
    values = {f"{table}/user": "hdfs://ns1/hdfs", f"{table}/far": "hdfs://ns2/hdfs", f"{table}/s3": "s3a://b/x",
              "dfs.nameservices": "ns1,ns2", "dfs.namenode.http-address.ns1": "nn:9870",
              "dfs.namenode.http-address.ns2": "other:9870"}  # fmt: skip
    listed = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
    (tmp_path / "core-site.xml").write_text(f"<configuration>{listed}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(site.hdfs, "access", SimpleNamespace(urls=("http://nn:9870",)), raising=False)
    record, asked = Record("job", "alice", "s", 0.0), []
    monkeypatch.setattr(site.hdfs, "some", lambda path, most: asked.append(path) or [])
    for url in ("viewfs://shop/user/ck", "hdfs://ns1/hdfs/two", "viewfs://shop/far/ck", "hdfs://ns2/hdfs/ck",
                "viewfs://shop/s3/ck", "viewfs://unknown/ck", "viewfs://shop/nowhere", "hdfs://[bad"):  # fmt: skip
        assert site.port.files.newest(record, replace(SPEC, checkpoint=url)) is None
    assert asked == ["/hdfs/ck", "/hdfs/two"]


@pytest.mark.parametrize("mode", ["755", "777"])
def test_where_everybody_may_write_a_checkpoint_of_anothers_is_none(site: Site, tmp_path: Path, mode: str) -> None:
    store, record = FolderStore(str(tmp_path)), Record("job", "alice", "s", 0.0)
    for step, epoch, owner in ((5, 1, "alice"), (99, 9, "mallory")):
        mark = checkpoints.write(store, step, epoch, {}, lambda _folder: None, lambda: None)
        manifest = (tmp_path / mark.name / checkpoints.MANIFEST).read_bytes()
        site.hdfs.files[f"/ck/{mark.name}/{checkpoints.MANIFEST}"] = manifest
        site.hdfs.owners[f"/ck/{mark.name}"] = owner
    site.hdfs.folders.add("/ck")
    site.hdfs.owners["/ck"], site.hdfs.modes["/ck"] = "mallory", mode
    found = site.port.files.newest(record, replace(SPEC, checkpoint="webhdfs://nn:9870/ck"))
    assert found is not None
    assert found[:2] == ((1, 5.0) if mode == "777" else (9, 99.0))


def test_a_folder_that_hangs_is_waited_for_a_little_and_once() -> None:
    import threading

    gate, asked = threading.Event(), []

    def hangs() -> str:
        asked.append(1)
        gate.wait()
        return "late"

    aside = Aside(patience_s=0.05)
    assert aside.ask("job", hangs) is None
    assert aside.ask("job", hangs) is None
    assert (len(asked), aside.ask("other", lambda: "at once")) == (1, "at once")
    gate.set()


@pytest.mark.parametrize(
    "manifest", [b"[" * 100_000, b'{"check": 1, "files": {"a": {"size": 1e999, "blake2b": ""}}}', b"x"]
)
def test_a_hostile_checkpoint_is_no_checkpoint(tmp_path: Path, site: Site, manifest: bytes) -> None:
    entry = tmp_path / "step-000000000001.epoch-00000001"
    entry.mkdir()
    (entry / "horae.json").write_bytes(manifest)
    in_hdfs = "/hdfs/ck/step-000000000001.epoch-00000001/horae.json"
    site.hdfs.files[in_hdfs] = manifest
    newest = Newest(site.hdfs)  # type: ignore[arg-type]
    for where in (str(tmp_path), "hdfs://x/hdfs/ck"):
        assert newest.of("job", replace(SPEC, checkpoint=where), "alice") is None


@pytest.mark.parametrize(
    ("path", "owner", "mode", "why"),
    [
        ("/hdfs", "mallory", "755", "/hdfs is mallory's, and Horae is horae"),
        ("/hdfs/kept", "mallory", "755", "/hdfs/kept is mallory's"),
        ("/hdfs/kept/records", "mallory", "755", "/hdfs/kept/records is mallory's"),
        ("/hdfs/lib", "mallory", "755", "/hdfs/lib is mallory's"),
        ("/hdfs", "horae", "777", "everybody may write to /hdfs (its mode is 777)"),
        ("/hdfs/lib", "horae", "1777", "everybody may write to /hdfs/lib (its mode is 1777)"),
    ],
)
def test_what_somebody_made_where_the_bridge_keeps_its_own_is_not_believed(
    site: Site, path: str, owner: str, mode: str, why: str
) -> None:
    site.port.submit("job", ALICE)
    site.hdfs.folders.add(path)
    site.hdfs.owners[path], site.hdfs.modes[path] = owner, mode
    with pytest.raises(FixConfiguration) as said:
        site.connect()
    assert why in said.value.text
    assert "nothing in it is believed" in said.value.text
    onlooker: Any = YarnCluster(parse_options(site.options), lambda: site.now_s, site.yarn, site.hdfs)  # type: ignore[arg-type]
    with pytest.raises(FixConfiguration):
        onlooker.observe()
    site.hdfs.owners[path], site.hdfs.modes[path] = "horae", "755"
    assert [each.id for each in attend(site.connect()).jobs] == ["job"]


@pytest.mark.parametrize(("mode", "good"), [("777", False), ("1777", True), ("775", True)])
def test_a_folder_above_in_which_everybody_may_rename_is_no_ground(mode: str, good: bool) -> None:
    site = Site()
    site.hdfs.folders |= {"/shared", "/shared/apps"}
    site.hdfs.owners |= {"/shared": "hdfs", "/shared/apps": "hdfs"}
    site.hdfs.modes["/shared"] = mode
    site.options["folder"] = "/shared/apps/horae"
    if good:
        assert attend(site.connect()).jobs == ()
        return
    with pytest.raises(FixConfiguration, match="everybody may write to /shared"):
        site.connect()
