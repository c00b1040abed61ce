"""What users write against what is read of Slurm: no comment, name, account or path decides anything but its own job.

The same on real daemons: tests/real/test_slurm_hostile.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horae.port import FixConfiguration, JobState, ObservedJob, PortError, attend
from policy.model import BadInput
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.base import CannotSay
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.command_reading import (
    JOB_FIELDS,
    ahead_of,
    ends_of,
    exit_codes,
    job_rows_of,
    node_rows_of,
    racks_of,
    settings_of,
    split_of,
)
from slurm_plugin.clients.pyslurm import JOB_NAMES
from slurm_plugin.clients.pyslurm import job_row as pyslurm_row
from slurm_plugin.clients.rest_reading import job_rows, node_rows
from slurm_plugin.clients.sealed import PLAIN, Seal
from slurm_plugin.comment import parse_tag, parse_word
from slurm_plugin.files.transport import Completed
from slurm_plugin.jobs.shapes import stdout_path
from slurm_plugin.options import Options
from slurm_plugin.records import BadRecord, End, duration, expand, gpus, number, size
from tests.slurm_plugin.boundary import Boundary, job, running
from tests.slurm_plugin.rows import ROW

#: What an owner of a job writes as he likes, in Slurm's own words for it
USERS_FIELDS = (
    "Comment",
    "Name",
    "Account",
    "WorkDir",
    "Command",
    "STDOUT",
    "tres-per-node",
    "tres-per-job",
    "Feature",
)
#: A record of another job, as he would have it read, between the marks of an earlier release
GHOST = "\x1f".join(job(4242, UserName="root", UserID="0", State="RUNNING", NodeList="n1").values())
TEXTS = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="\x1e\x1f\n\r\t\0x,=:²٣9", max_size=60),
    st.sampled_from(["\x1e\n" + GHOST + "\x1e\n", "a\x1fb", "x\x1ey", "\n", "horae:min=²", "horae:max=" + "9" * 5000]),
)


def cluster(slurm: Boundary, folder: Path) -> SlurmCluster:
    options = Options(partitions=("dl",), spool=str(folder / "spool"), state=str(folder / "memory"))
    return SlurmCluster(options, slurm, choose(options, slurm))


@given(st.fixed_dictionaries(dict.fromkeys(USERS_FIELDS, TEXTS)))
@example(dict.fromkeys(USERS_FIELDS, "\x1e\n" + GHOST + "\x1e\n"))
def test_whatever_users_write_stays_in_its_field(words: dict[str, str]) -> None:
    slurm = Boundary({"1": job(1, **words), "2": running(2)})
    seal = Seal.fresh()
    odd: list[str] = []
    rows = job_rows_of(slurm._squeue(seal.format(JOB_FIELDS)), seal, {}, odd)
    assert odd == []
    assert [(row.id, row.user, row.uid, row.state, row.nodes) for row in rows.values()] == [
        ("1", "ann", 1000, "PENDING", ()), ("2", "ann", 1000, "RUNNING", ("n1",)),
    ]  # fmt: skip
    assert next(iter(rows.values())).name == words["Name"]


HOSTILE = (
    "", "\n", "x" * 65536, "$(touch pwned)", "'\"`;|&<>", "%j/../../etc/%x", "\x1b]0;x\x07\u202e", "-u root",
    "\udcff", "horae=zzz,gpus=9999999,shape=own", "horae:min=1,max=1000000,app=../../x", "afternotok:2:3(unfulfilled)",
    "n[1-99999]x[1-9]", "gres:gpu:" + "9" * 30, "-1", "9" * 400, "1e308", "0", "N/A", "UNLIMITED", "dl,raw", "²",
)  # fmt: skip
HIS = (*USERS_FIELDS, "QOS", "Dependency", "NumNodes", "NumCPUs", "TimeLimit", "TimeLeft", "tres-alloc", "exit_code")


def day(folder: Path, **words: str) -> tuple[list[object], list[str], list[str]]:
    """What is shown of the others, and what became of a start, a stop and a cancel of theirs; what Slurm was told; what
    was noted. Job 1 is of who wrote `words`."""
    told: list[str] = []

    def note(command: str, answer: Completed) -> Completed:
        told.append(command)
        return answer

    slurm = Boundary({"1": job(1, **words), "2": job(2), "3": running(3), "4": job(4)}, spoil=note)
    port = cluster(slurm, folder)
    port.claim("me")
    seen = attend(port)
    done = [
        port.start_many([("2.n2", {"n2": 1}, 1)]),
        port.stop_many([("3.n3", 30.0)]),
        port.cancel_many(["4.n4"]),
    ]
    with contextlib.suppress(PortError):
        port.start("1.n1", {"n1": 1}, 1)
    with contextlib.suppress(PortError):
        port.read_log("1.n1", 0)
    later = attend(port)
    others = [each for look in (seen, later) for each in look.jobs if not each.id.startswith("1.")]
    nodes = [node.foreign for node in seen.nodes]
    return [*others, nodes, done], [*told, *(" ".join(argv) for argv in slurm.ran)], [*seen.notes, *later.notes]


@pytest.mark.parametrize("field", HIS)
def test_whatever_stands_in_a_field_costs_its_own_job_at_most(field: str, tmp_path: Path) -> None:
    plain, _, _ = day(tmp_path / "plain")
    for at, value in enumerate(HOSTILE):
        others, told, notes = day(tmp_path / str(at), **{field: value})
        assert [_without_times(each) for each in others] == [_without_times(each) for each in plain], value
        assert len(value) < 5 or not any(value in line for line in told), "his words reach no command line"
        assert all(note.isprintable() and len(note) < 600 for note in notes), notes


def _without_times(each: object) -> object:
    return replace(each, since_s=0.0) if isinstance(each, ObservedJob) else each


def test_an_end_is_told_whatever_its_site_wrote_before_the_mark() -> None:
    assert ends_of("1|COMPLETED|0:0|10|17|a|b horae=n1,gpus=1\n") == {"1.n1": End("COMPLETED", 0, 17.0)}


def test_a_seal_is_another_for_each_answer_and_no_other_user_sees_it(tmp_path: Path) -> None:
    slurm = Boundary({"1": job(1)})
    port = cluster(slurm, tmp_path)
    attend(port)
    attend(port)
    said = [argv for argv in slurm.ran if argv[0] == "squeue"]
    assert len(said) == 2
    assert not any("\x1e" in word or "\x1f" in word for argv in said for word in argv), "every user reads command lines"
    assert Seal.fresh() != Seal.fresh()


@pytest.mark.parametrize(
    "changes",
    [
        {"UserID": ""}, {"UserID": "root"}, {"UserID": "-1"}, {"UserID": "9" * 5000}, {"JobArrayID": "../../etc"},
        {"JobArrayID": ""}, {"JobID": "²"},
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_slurms_is_set_aside_and_the_others_count(
    changes: dict[str, str], tmp_path: Path
) -> None:
    slurm = Boundary({"1": job(1, **changes), "2": running(2)})
    seen = cluster(slurm, tmp_path).observe()
    assert [each.id for each in seen.jobs] == ["2.n2"]
    assert any("set aside" in note for note in seen.notes)


def test_a_job_that_is_told_twice_and_differently_is_believed_neither_time(tmp_path: Path) -> None:
    slurm = Boundary({"1": job(1), "x": running(1, UserName="root", UserID="0"), "2": running(2)})
    seen = cluster(slurm, tmp_path).observe()
    assert [each.id for each in seen.jobs] == ["2.n2"]
    assert any("told twice" in note for note in seen.notes)


def test_a_prefix_that_keeps_the_format_back_is_named(tmp_path: Path) -> None:
    class Sudo(Boundary):
        def _squeue(self, format_: str, argv: Sequence[str] = ()) -> str:
            return "             JOBID PARTITION     NAME\n"

    with pytest.raises(FixConfiguration) as raised:
        cluster(Sudo(), tmp_path).observe()
    assert "SQUEUE_FORMAT2" in str(raised.value)
    assert "env_keep" in raised.value.remedy


@pytest.mark.parametrize(
    "word", ["min=²", "min=" + "9" * 5000, "max=1e999", "iters=1e-320", "iters=nan", "grace=" + "1" * 400, "min=٣",
             "types=a\x1b[2J", "ckpt=/x\x9b", "allowed=1/²", "min", "=", "app=../x"],
)  # fmt: skip
def test_a_word_that_cannot_be_read_makes_that_job_rigid_and_says_why(word: str, tmp_path: Path) -> None:
    slurm = Boundary({"1": job(1, Comment=f"horae:{word}"), "2": job(2, Comment="horae:min=1,max=4")})
    seen = cluster(slurm, tmp_path).observe()
    first, second = (each.spec for each in seen.jobs)
    assert first is not None and second is not None
    assert (first.elastic, second.elastic) == (False, True)
    why = [note for note in seen.notes if "taken as rigid" in note]
    assert len(why) == 1
    assert why[0].isprintable()
    assert len(why[0]) < 400


@given(st.one_of(TEXTS, TEXTS.map(lambda text: "horae:" + text)))
def test_the_parser_of_comments_says_what_is_wrong_or_gives_numbers_within_bounds(text: str) -> None:
    try:
        word = parse_word(text)
    except BadInput as error:
        assert len(str(error)) < 2000
        return
    if word is not None:
        found = word.range(4)
        assert 1 <= found.min <= found.max <= 1_000_000
        assert word.iterations is None or 1e-3 <= word.iterations <= 1e12
        assert word.grace_s is None or 1e-3 <= word.grace_s <= 1e6


@given(TEXTS)
def test_a_tag_names_no_path(text: str) -> None:
    tag = parse_tag(f"horae={text}")
    assert tag is None or tag.nonce.isalnum()
    last = parse_tag(f"horae=../../x {text} horae=abc,gpus=2")
    assert last is not None
    assert (last.nonce, last.gpus) == ("abc", 2)


def test_names_and_paths_reach_no_screen_as_they_are(tmp_path: Path) -> None:
    words = {"Name": "x\x1b]0;PWNED\x07", "Account": "\x1b[2J", "WorkDir": "/tmp/\u202e", "Command": "/x\x9b1m"}
    seen = cluster(Boundary({"1": job(1, **words)}), tmp_path).observe()
    spec = seen.jobs[0].spec
    assert spec is not None
    assert all(text.isprintable() for text in (spec.name, spec.tenant, spec.cwd, *spec.command))


@given(TEXTS)
def test_no_parser_of_slurms_words_raises(text: str) -> None:
    for parse in (duration, expand, gpus, number, size, settings_of, ends_of, racks_of):
        parse(text)
    ahead_of(text, 0.0, 1.0)
    split_of(text, ROW)
    stdout_path(ROW.__class__(**{**{name: getattr(ROW, name) for name in ROW.__slots__}, "stdout": text}))
    list(zip(exit_codes(text), range(1000), strict=False))


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("9" * 5000),
    st.fixed_dictionaries({"set": st.booleans(), "infinite": st.booleans(), "number": st.integers()}),
    st.lists(st.text(max_size=5), max_size=3),
)  # fmt: skip
REST = Path(__file__).parent / "recorded/24.11/rest-v0.0.42.json"


@given(st.data())
def test_a_job_of_slurmrestd_in_unknown_words_is_set_aside_alone(data: Any) -> None:
    said = json.loads(REST.read_text())["jobs"]["jobs"]
    good, bad = said[0], dict(said[1])
    for key in data.draw(st.lists(st.sampled_from(sorted(bad)), min_size=1, max_size=3)):
        bad[key] = data.draw(SCALARS)
    odd: list[str] = []
    try:
        rows = job_rows([good, bad, [], None], (), 0.0, odd)  # type: ignore[list-item]
    except CannotSay:
        return  # another client is asked
    assert str(good["job_id"]) in {row.id for row in rows}
    assert len(odd) >= 2


def test_nodes_and_jobs_of_slurmrestd_without_an_owner_are_none_of_roots() -> None:
    said = json.loads(REST.read_text())
    first = {key: value for key, value in said["jobs"]["jobs"][0].items() if key != "user_id"}
    odd: list[str] = []
    assert job_rows([first], (), 0.0, odd) == []
    assert "whose" in odd[0]
    assert node_rows(said["nodes"]["nodes"], ())


@given(st.fixed_dictionaries(dict.fromkeys(JOB_NAMES, SCALARS)))
def test_a_job_of_pyslurm_is_a_row_or_an_error_of_its_own(job_: dict[str, Any]) -> None:
    try:
        row = pyslurm_row(job_, "7", 7, 0.0)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return  # what the client sets aside
    assert row.uid >= 0


@given(TEXTS)
def test_an_answer_of_squeue_or_sinfo_is_read_or_refused(text: str) -> None:
    from horae.port import PortError

    odd: list[str] = []
    for read in (lambda: job_rows_of(text, PLAIN, {}, odd), lambda: node_rows_of(text)):
        try:
            read()
        except PortError:
            continue


def test_an_unknown_owner_is_a_bad_record() -> None:
    seal, odd = PLAIN, list[str]()
    slurm = Boundary({"1": job(1, UserID="nobody")})
    assert job_rows_of(slurm._squeue(seal.format(JOB_FIELDS)), seal, {}, odd) == {}
    assert odd
    assert issubclass(BadRecord, ValueError)
    assert JobState.QUEUED
