"""The command line: every option in every spelling, and what is refused."""

from __future__ import annotations

import pytest

from policy.model import BadInput
from yarn_bridge.submarine.table import OPTIONS, Option, Takes
from yarn_bridge.submarine.words import parse

WITH_VALUE = [option for option in OPTIONS if option.takes is not Takes.NOTHING]
FLAGS = [option for option in OPTIONS if option.takes is Takes.NOTHING]


def got(*words: str) -> list[tuple[str, str]]:
    return [(item.option.name, item.value) for item in parse(words)]


@pytest.mark.parametrize("option", WITH_VALUE, ids=lambda option: option.name)
def test_a_value_in_every_spelling(option: Option) -> None:
    expected = [(option.name, "a=b c")]
    assert got(f"--{option.name}", "a=b c") == expected
    assert got(f"-{option.name}", "a=b c") == expected
    assert got(f"--{option.name}=a=b c") == expected
    assert got(f"-{option.name}=a=b c") == expected


@pytest.mark.parametrize("option", FLAGS, ids=lambda option: option.name)
def test_a_flag_in_every_spelling(option: Option) -> None:
    for words in ([f"--{option.name}"], [f"-{option.name}"], [f"--{option.name}", "true"], [f"--{option.name}=true"]):
        assert got(*words) == [(option.name, "true")]


@pytest.mark.parametrize("option", FLAGS, ids=lambda option: option.name)
def test_a_flag_switched_off_is_refused_not_switched_on(option: Option) -> None:
    for words in ([f"--{option.name}", "false"], [f"--{option.name}=false"]):
        with pytest.raises(BadInput, match="takes no value"):
            parse(words)


@pytest.mark.parametrize("option", WITH_VALUE, ids=lambda option: option.name)
def test_a_value_that_is_missing_is_missed(option: Option) -> None:
    for words in ([f"--{option.name}"], [f"--{option.name}", "--verbose"]):
        with pytest.raises(BadInput, match="has no value") as caught:
            parse(words)
        assert caught.value.field == f"--{option.name}"


def test_a_value_may_begin_with_a_dash_or_stand_in_quotes() -> None:
    assert got("--worker_launch_cmd", "-c 1", "--name", '"x y"') == [("worker_launch_cmd", "-c 1"), ("name", "x y")]
    assert got("--worker_launch_cmd", 'echo "a"') == [("worker_launch_cmd", 'echo "a"')]
    assert got("--worker_launch_cmd", '"a" "b"') == [("worker_launch_cmd", '"a" "b"')], "not one pair: left alone"


def test_the_file_may_be_glued_to_its_option() -> None:
    assert got("-fjob.yaml") == got("-f", "job.yaml") == [("f", "job.yaml")]


def test_our_own_options_take_the_spelling_of_the_other_commands() -> None:
    assert got("--dry-run", "--min-workers", "1") == [("dry_run", "true"), ("min_workers", "1")]


def test_only_lists_may_stand_twice() -> None:
    assert got("--env", "A=1", "-env", "B=2") == [("env", "A=1"), ("env", "B=2")]
    with pytest.raises(BadInput, match="stands twice"):
        parse(["--name", "a", "-name", "b"])


def test_a_word_of_no_option_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(BadInput, match=r"'train.py' belongs to no option \(put quotes around the value of --worker_l"):
        parse(["--worker_launch_cmd", "python", "train.py"])
    lost = parse(["--conf", "a=b,", "c", "--verbose", "yes"]).strays
    assert [word for word, _ in lost] == ["c", "yes"], "Submarine lost no more than these words: said by who uses them"


@pytest.mark.parametrize(
    ("word", "near"), [("--worker_resource", "--worker_resources"), ("-num_worker=2", "--num_workers"), ("-frob", "-")]
)
def test_an_unknown_option_names_the_nearest(word: str, near: str) -> None:
    with pytest.raises(BadInput, match="is no option of Submarine's") as caught:
        parse([word, "x"])
    assert near in caught.value.remedy
