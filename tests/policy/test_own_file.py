"""Policies in a file of one's own: named by a person, read without running them, and changed by nobody else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from policy import catalogue, own_file
from policy.decide import decide
from policy.model import BadInput, PolicyChoice, Snapshot
from policy.text import instance
from tests.policy.commands import TREE, horae

EXAMPLE = TREE / "docs/policies/example.yaml"
FIRST = '''\
"""First come.

More about it.
"""

from policy.contract import Option
from policy.model import Proposal
from policy.places.placement import Placer

OPTIONS = (Option("most", int, 3, "jobs at once", low=1),)
IDLE = ("requested",)


def decide(snapshot, options, context):
    placer = Placer(snapshot, context.speeds)
    for job in sorted(snapshot.jobs, key=lambda job: job.order)[: options["most"]]:
        place = placer.best(job, job.gpus.requested)
        if place is not None:
            placer.take(job, place)
    return Proposal(allocation=placer.taken)
'''


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A file of its own, which no other test's catalogue knows. Its folders are ours alone."""
    monkeypatch.setattr(catalogue, "_files", {})

    def written(text: str = FIRST, name: str = "mine.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o644)
        return path

    return written


def example() -> Snapshot:
    return instance.read(str(EXAMPLE))


def test_it_says_of_itself_what_a_catalogue_says_and_decides(write: Callable[..., Path]) -> None:
    entry = catalogue.named(str(write()))
    assert (entry.summary, entry.idle, entry.resolve({})) == (
        "First come.",
        ("requested",),
        {"most": 3},
    )
    decision = decide(example(), entry.name, {"most": 1})
    assert sum(bool(nodes) for nodes in decision.allocation.values()) == 1


def test_nothing_of_it_runs_before_it_decides(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{FIRST}")
    entry = catalogue.named(str(path))
    entry.resolve({"most": "2"})
    assert not (tmp_path / "ran").exists()
    catalogue.load(entry)
    assert (tmp_path / "ran").exists()


def test_what_was_read_first_counts_until_the_end(write: Callable[..., Path]) -> None:
    entry = catalogue.named(str(write()))
    write("def decide(*asked): 1 / 0\n")
    assert decide(example(), catalogue.named(entry.name).name).allocation


def test_a_snapshot_cannot_have_a_file_run(write: Callable[..., Path]) -> None:
    """It may be anybody's; whoever gives it names the file."""
    path = write()
    with pytest.raises(BadInput, match="runs only for whoever names it"):
        decide(Snapshot(example().cluster, (), policy=PolicyChoice(str(path), {})))
    line = {"instance": str(EXAMPLE), "policy": str(path)}
    write(json.dumps(line) + "\n", "batch.jsonl")
    done = horae({**os.environ, "PYTHONPATH": str(TREE)}, "decide", "--batch", str(path.with_name("batch.jsonl")))
    assert "runs only for whoever names it" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def decide(:\n", r":1: is no Python"),
        ("from elsewhere import decide\n", "has no function decide"),
        (FIRST.replace('"most", int, 3', '"most", int, "x"'), r":10: OPTIONS cannot be read .*whole number"),
        (FIRST.replace("3,", "open('/etc/passwd').read(),"), ":10: OPTIONS cannot be read without running it"),
        (FIRST.replace('("requested",)', '("lazy",)'), ":11: IDLE cannot be read .*lazy"),
        (FIRST.replace('("requested",)', "3"), ":11: IDLE cannot be read .*int, not tuple"),
        (re.sub("OPTIONS = .*", 'OPTIONS: tuple = ("most",)', FIRST), ":10: OPTIONS .* is no Option"),
        ("#" * (own_file.MOST_BYTES + 1), "is larger than"),
    ],
)
def test_one_that_is_no_policy_is_told_with_its_line(write: Callable[..., Path], text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        catalogue.named(str(write(text)))


def test_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        catalogue.named(str(tmp_path / "none.py"))


@pytest.mark.parametrize("part", ["file", "folder"])
def test_an_arbiter_refuses_what_others_may_change(write: Callable[..., Path], part: str) -> None:
    path = write()
    changed = path if part == "file" else path.parent
    assert own_file.changed_by_others(path) is None
    changed.chmod(0o666 if part == "file" else 0o777)
    with pytest.raises(BadInput, match=f"{changed} can be changed by others .*chmod go-w {changed}"):
        catalogue.named(str(path), believed=False)


def test_so_is_a_link_in_a_folder_that_others_may_change(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write()
    (tmp_path / "open").mkdir()
    (tmp_path / "open/link.py").symlink_to(path)
    (tmp_path / "open").chmod(0o777)
    assert own_file.changed_by_others(tmp_path / "open/link.py") == tmp_path / "open"


def test_so_is_a_link_that_leads_through_one(write: Callable[..., Path], tmp_path: Path) -> None:
    """First and last are ours; who may change what lies between says what is read."""
    path = write()
    (tmp_path / "open").mkdir()
    (tmp_path / "open/between").symlink_to(tmp_path)
    (tmp_path / "link.py").symlink_to(f"{tmp_path.name}/../open/between/{path.name}")
    (tmp_path / tmp_path.name).mkdir()
    assert own_file.changed_by_others(tmp_path / "link.py") is None
    (tmp_path / "open").chmod(0o777)
    found = own_file.changed_by_others(tmp_path / "link.py")
    assert found is not None
    assert found.resolve() == tmp_path / "open"
    (tmp_path / "for-ever.py").symlink_to("for-ever.py")
    with pytest.raises(BadInput, match="cannot be read"):
        catalogue.named(str(tmp_path / "for-ever.py"), believed=False)
    with pytest.raises(OSError, match="symbolic links"):
        own_file.changed_by_others(tmp_path / "for-ever.py")


@pytest.mark.root
def test_so_is_a_link_of_anothers_where_everybody_may_make_some(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    link = tmp_path / "tmp/link.py"
    link.symlink_to(path)
    assert own_file.changed_by_others(link) is None
    os.chown(link, 65534, 65534, follow_symlinks=False)
    assert own_file.changed_by_others(link) == link


@pytest.mark.root
def test_root_refuses_it_on_a_command_line_too(write: Callable[..., Path]) -> None:
    path = write()
    os.chown(path, 65534, 65534)
    with pytest.raises(BadInput, match="can be changed by others"):
        catalogue.named(str(path))


@pytest.mark.parametrize("command", ["decide", "policies", "simulate"])
def test_commands_take_it_and_tell_what_it_raises(command: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FIRST if command != "decide" else FIRST.replace("job.order)", "job.ordre)"))
    path.chmod(0o644)
    trace = tmp_path / "jobs.csv"
    trace.write_text("job,submitted,gpus,duration\na,0,1,60\nb,1,2,60\n")
    words = {
        "policies": ("policies", str(path)),
        "decide": ("decide", str(EXAMPLE), "--policy", str(path)),
        "simulate": ("simulate", str(trace), "--cluster", "v100:2x4", "--policy", str(path)),
    }[command]
    done = horae({**os.environ, "PYTHONPATH": str(TREE), "TMPDIR": str(tmp_path)}, *words)
    if command == "decide":
        assert done.returncode == 1
        assert f"{path}: raised AttributeError" in done.stderr
        assert f" at {path}:16\n" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert str(path) in done.stdout
