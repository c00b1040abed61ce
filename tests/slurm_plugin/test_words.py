"""Slurm's words and the user's: durations, GPU requests, hostlists, comments, error sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import FixConfiguration, Never, TryLater
from policy.model import BadInput, Gpus
from slurm_plugin.comment import parse_tag, parse_word
from slurm_plugin.errors import ControllerAway, port_error
from slurm_plugin.records import duration, expand, gpu_count, gpus, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00", 0),
        ("59:59", 3599),
        ("1:00:00", 3600),
        ("2-03:04:05", 183845),
        ("UNLIMITED", None),
        ("N/A", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:v100:4", {"v100": 4}),
        ("gpu:v100:2(S:0-1),gpu:k80:1", {"v100": 2, "k80": 1}),
        ("gpu:v100:2(IDX:0,2)", {"v100": 2}),
        ("gres:gpu:2", {"gpu": 2}),
        ("gres/gpu:3", {"gpu": 3}),
        ("gres/gpu=4", {"gpu": 4}),
        ("gres:gpu", {"gpu": 1}),
        ("gpu:3090:4(S:0-1),gpu:2080ti:1", {"3090": 4, "2080ti": 1}),
        ("gres/gpu:3090=2,gpu:8", {"3090": 2, "gpu": 8}),
        ("mps:100", {}),
        ("N/A", {}),
    ],
)
def test_gpu_requests(text: str, found: dict[str, Gpus]) -> None:
    assert gpus(text) == found
    assert gpu_count(text) == (sum(found.values()) or None)


@pytest.mark.parametrize(
    ("text", "value"), [("500M", 500 << 20), ("62.50G", 67108864000), ("64000", 64000 << 20), ("", None)]
)
def test_sizes(text: str, value: int | None) -> None:
    assert size(text) == value


def test_hostlists() -> None:
    assert expand("n[1-3],x5") == ("n1", "n2", "n3", "x5")
    assert expand("n[1-") == ()
    assert expand("n[1-999999999]") == expand("n[1-9999]x[1-9999]") == expand("n" + "9" * 5000) == ()
    assert len(expand("n[1-100],x[1-50]-[1-4]")) == 300


def test_the_users_word_is_found_anywhere() -> None:
    word = parse_word(
        "for the paper horae:min=1,max=8,app=sweep7,key=resnet50,types=v100/a100,iters=4e3,grace=90 thanks"
    )
    assert word is not None
    assert (word.min, word.max, word.app, word.key, word.types) == (1, 8, "sweep7", "resnet50", ("v100", "a100"))
    assert (word.iterations, word.grace_s) == (4000, 90)
    assert parse_word("not-horae:min=1") is None
    word = parse_word("horae:prefer=a100/v100,forbid=k80")
    assert word is not None
    assert (word.types, word.prefer, word.forbid) == ((), ("a100", "v100"), ("k80",))


@pytest.mark.parametrize(
    ("comment", "requested", "low", "high", "allowed"),
    [
        ("horae:", 4, 1, 4, None),
        ("horae:min=2", 4, 2, 4, None),
        ("horae:max=8", 2, 1, 8, None),
        ("horae:min=6", 4, 6, 6, None),
        ("horae:allowed=4/1/2", 2, 1, 4, (1, 2, 4)),
    ],
)
def test_ranges(comment: str, requested: int, low: int, high: int, allowed: tuple[int, ...] | None) -> None:
    word = parse_word(comment)
    assert word is not None
    found = word.range(requested)
    assert (found.requested, found.min, found.max, found.allowed) == (requested, low, high, allowed)


@pytest.mark.parametrize(
    ("comment", "field"),
    [
        ("horae:mni=1", "mni"), ("horae:min=0", "min"), ("horae:min=1,min=2", "min"), ("horae:min=9,max=2", "min"),
        ("horae:allowed=2,max=4", "allowed"), ("horae:grace=-1", "grace"), ("horae:grace=nan", "grace"),
        ("horae:app=a;b", "app"), ("horae:min", "horae:"),
        ("horae:prefer=a;b", "prefer"), ("horae:forbid=" + "/".join(f"t{i}" for i in range(65)), "forbid"),
    ],
)  # fmt: skip
def test_a_wrong_word_names_its_key(comment: str, field: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_word(comment)
    assert raised.value.field == field


@given(st.text(max_size=200))
def test_no_comment_breaks_the_parser(text: str) -> None:
    parse_tag(text)
    try:
        parse_word(text)
    except BadInput as error:
        assert str(error)


def test_the_tag() -> None:
    tag = parse_tag("site text horae=6f1c,gpus=4,nodes=2,types=v100/k80,cpus=16,mem=2000,begin=1700000000")
    assert tag is not None
    assert (tag.nonce, tag.gpus, tag.nodes, tag.types, tag.cpus) == ("6f1c", 4, 2, ("v100", "k80"), 16)
    assert (tag.memory, tag.begin_s) == (2000 << 20, 1700000000)
    assert parse_tag("horae:min=1") is None


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", ControllerAway),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", ControllerAway),
        ("slurm_update error: Invalid job id specified", Never),
        ("slurm_update error: Access/permission denied", FixConfiguration),
        ("scontrol: error: Incompatible versions of client and server code", FixConfiguration),
        ("Requested operation is presently disabled for job 5", FixConfiguration),
        ("slurm_update error: Job can not be altered now, try again later", TryLater),
        ("a sentence that nobody has seen", TryLater),
        ("", TryLater),
    ],
)
def test_errors_say_what_to_do_next(sentence: str, kind: type[Exception]) -> None:
    error = port_error(sentence, "starting 5")
    assert type(error) is kind or (kind is Never and isinstance(error, Never))
    assert error.text.startswith("starting 5: ")
