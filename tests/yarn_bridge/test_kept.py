"""What the bridge keeps of a job and cannot read: the job is left as it is, and it is said, until it can."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from horae.port import FixConfiguration, JobState, TryLater
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.jobs.record import FORM, Record, decode_kept, encode_kept

RECORD, ASKED = "/hdfs/kept/records/job", "/hdfs/kept/specs/job"


def newer(data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "form": FORM + 1, "colour": "blue"}).encode()


def empty(_data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[:30]


def wrong(_data: bytes) -> bytes:
    return b'{"job": 7}'


def test_a_record_says_its_form() -> None:
    data = encode_kept(Record("job", "ann", "horae-job", 1.0))
    assert json.loads(data)["form"] == FORM
    with pytest.raises(ValueError, match="was written by a newer Horae"):
        decode_kept(newer(data))


@pytest.mark.parametrize("damage", [newer, empty, cut, wrong])
@pytest.mark.parametrize("path", [RECORD, ASKED])
def test_a_job_of_which_what_is_kept_cannot_be_read_is_left_as_it_is(
    site: Site, damage: Callable[[bytes], bytes], path: str
) -> None:
    site.running({"n1": 1})
    before = site.hdfs.document(path)
    assert before is not None
    site.hdfs.keep_document(path, damage(before), "")
    site.port = site.connect()
    seen = site.port.observe()
    assert [job.id for job in seen.jobs] == []
    (odd,) = seen.unread
    assert odd.startswith(path)
    node = next(node for node in seen.nodes if node.name == "n1")
    assert node.foreign == 1, "its GPU is nobody else's"
    with pytest.raises(FixConfiguration, match=path):
        site.port.submit("job", SPEC)
    with pytest.raises(FixConfiguration, match=path):
        site.port.cancel("job")
    with pytest.raises((FixConfiguration, TryLater)):
        site.port.start("job", {"n2": 1}, 2)
    assert site.hdfs.document(path) == damage(before)
    assert site.gate()["state"] == "open"
    site.hdfs.keep_document(path, before, "")
    assert site.look().state is JobState.RUNNING, "as soon as it is mended"
    assert site.port.observe().unread == ()


def test_a_record_that_is_damaged_while_another_arbiter_is_in_charge_blinds_nobody(site: Site) -> None:
    site.running({"n1": 1})
    other = site.connect()
    other.claim("another")
    before = site.hdfs.document(RECORD)
    assert before is not None
    site.hdfs.keep_document(RECORD, b"{", "")
    site.tell("members/somebody", {})  # so that the folder has another stamp
    assert len(site.port.observe().unread) == 1
