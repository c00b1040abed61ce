"""`horae what-if --from-journal`: what an arbiter that only observes wrote down, against numbers by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.fake import Program
from horae.journal import Journal
from horae.journal.reading import FILE
from horae.sim.whatif.answer import WhatIf, from_journal
from policy.model import BadInput
from tests.horae.arbiter.site import Site, spec
from tests.horae.cli.conftest import Horae, horae

__all__ = ["horae"]

START_S = 1_000_000.0
GPU_S = {"a": 4 * 100, "b": 8 * 100, "e": 4 * 80 + 4 * 20}


class Watching:
    """Six jobs on n1, n2 and n4 of four nodes with 4 GPUs each; one GPU iterates in 0.5 s."""

    def __init__(self, folder: Path, mode: str = "observe") -> None:
        quick = Program(iteration_s=0.5, start_s=0.0)  # a start that takes time may be over before it is looked at
        self.site = Site(folder, pools=[{"name": "main", "mode": mode}], program=quick)

    def to(self, at_s: float) -> None:
        """Both the arbiter and the cluster are there."""
        self.site.run(START_S + at_s - self.site.time.now)
        self.site.world.advance()

    def submit(self, job: str, gpus: int, owner: str, steps: int = 100_000) -> None:
        self.site.world.submit(job, spec(job, gpus, owner=owner, steps=steps))

    def grant(self, job: str, epoch: int = 1, **nodes: int) -> None:
        self.site.world.grant(self.site.world.jobs[job], nodes, epoch)

    def first_part(self) -> None:
        self.submit("a", 4, "ann", steps=800)
        self.submit("b", 8, "ben", steps=1600)
        self.submit("c", 2, "ann")
        self.to(10)
        self.grant("a", n1=4)
        self.to(30)
        self.submit("e", 4, "eve")
        self.to(40)
        self.grant("e", n2=4)
        self.to(120)
        self.site.world.lose(self.site.world.jobs["e"])
        self.grant("b", n1=4, n2=4)  # what one look shows does not overlap, whichever job it shows first
        self.to(130)
        self.grant("e", 2, n4=4)
        self.to(150)
        self.site.world.lose(self.site.world.jobs["e"])
        self.to(200)
        self.submit("d", 2, "ben")
        self.to(230)
        self.grant("d", n4=2)
        self.to(240)

    def second_part(self) -> None:
        """Something must happen for a journal to know that time went by."""
        self.to(300)
        self.submit("f", 1, "ann")
        while "f" not in self.site.core.ledger.jobs:
            self.site.run(0.25)


def watched(folder: Path, mode: str = "observe") -> Site:
    watching = Watching(folder, mode)
    watching.first_part()
    watching.second_part()
    return watching.site


def gpu_seconds(site: Site) -> dict[str, float]:
    """By job; d, which still runs, as far as the newest event."""
    return {**GPU_S, "d": 2 * (site.core.ledger.at_s - START_S - 230)}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_the_history_of_a_living_arbiter_is_what_a_hand_reckons(tmp_path: Path, mode: str) -> None:
    site = watched(tmp_path, mode)
    answer = from_journal(tmp_path, WhatIf())
    past, held = answer["history"], gpu_seconds(site)
    total = sum(held.values())
    assert (past["jobs"], past["gpu_jobs"]) == (6, 4)
    assert past["skipped"] == {"no gpus": 0, "never started": 2}
    assert past["gpu_hours"] == pytest.approx(total / 3600)
    assert past["wait"]["mean"] == pytest.approx((10 + 120 + 10 + 30) / 4)
    assert past["wait"]["median"] == pytest.approx(20)
    assert answer["cluster"] == {"gpus": 12, "from": "journal"}
    assert past["utilisation"] == pytest.approx(total / (12 * (site.core.ledger.at_s - START_S - 10)))
    accounts = {name: (of["jobs"], of["gpu_hours"] * 3600, of["wait_mean"]) for name, of in past["by_account"].items()}
    assert accounts == {
        "ann": pytest.approx((1, held["a"], 10)),
        "ben": pytest.approx((2, held["b"] + held["d"], 75)),
        "eve": pytest.approx((1, held["e"], 10)),
    }
    assert {size: (of["jobs"], of["wait_mean"]) for size, of in past["by_size"].items()} == {
        "2": pytest.approx((1, 30)),
        "4": pytest.approx((2, 10)),
        "8": pytest.approx((1, 120)),
    }
    assert {state: hours * 3600 for state, hours in past["by_state"].items()} == {
        "COMPLETED": pytest.approx(held["a"] + held["b"]),
        "LOST": pytest.approx(held["e"]),
        "RUNNING": pytest.approx(held["d"]),
    }
    ledger = site.core.ledger
    charged = sum(sum(record.attained_at(ledger.at_s).values()) for record in ledger.jobs.values())
    assert charged == pytest.approx(total)
    assert site.fake.faults.calls["start"] == 0


def test_a_journal_whose_arbiter_is_gone_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    site = watched(tmp_path)
    living = from_journal(tmp_path, WhatIf())
    site.close()
    before = files(tmp_path)
    assert from_journal(tmp_path / FILE, WhatIf()) == living
    assert files(tmp_path) == before


def test_jobs_that_are_older_than_the_events_come_from_the_checkpoint(tmp_path: Path) -> None:
    watching = Watching(tmp_path)
    watching.first_part()
    assert watching.site.journal.compact(history_s=1.0, forget_after_s=1e6) > 10
    watching.second_part()
    answer = from_journal(tmp_path, WhatIf())
    past = answer["history"]
    assert (past["jobs"], past["gpu_jobs"]) == (6, 4)
    assert past["gpu_hours"] == pytest.approx(sum(gpu_seconds(watching.site).values()) / 3600)
    waits = {name: of["wait_mean"] for name, of in past["by_account"].items()}
    # Of a job that was interrupted only the sum is left: it counts as one run that ended when the last one did.
    assert waits == {"ann": pytest.approx(10), "ben": pytest.approx(75), "eve": pytest.approx(20, abs=0.5)}


def test_a_compacted_journal_that_kept_its_events_says_the_same(tmp_path: Path) -> None:
    watching = Watching(tmp_path)
    watching.first_part()
    watching.site.journal.compact(history_s=1e6, forget_after_s=10.0)
    watching.second_part()
    assert from_journal(tmp_path, WhatIf()) == from_journal(watched(tmp_path / "plain").config.state_dir, WhatIf())


def test_since_leaves_out_what_had_ended_before(tmp_path: Path) -> None:
    watched(tmp_path)
    assert from_journal(tmp_path, WhatIf(), 100.0)["history"]["by_account"].keys() == {"ben", "eve"}
    assert "ann" in from_journal(tmp_path, WhatIf(), 200.0)["history"]["by_account"]


def test_the_command_replays_what_was_seen(horae: Horae, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, out = tmp_path / "state", tmp_path / "report.html"
    watched(state)
    said = horae("what-if", "--from-journal", str(state), "--policies", "srtf", "--html", str(out), "--json")
    assert said.code == 0, said.err
    answer: dict[str, Any] = said.json
    assert set(answer) == {"history", "cluster", "replay", "policies", "assumptions", "levers"}
    # b need not wait for e: n4 is free.
    assert answer["policies"]["srtf"]["wait"]["mean"] < answer["history"]["wait"]["mean"]
    assert "jobs still running end when the journal does" in answer["assumptions"]
    assert "12" in out.read_text() and "LOST" in out.read_text()
    config = tmp_path / "config.yaml"
    config.write_text(f"cluster: {{adapter: fake}}\nstate_dir: {state}\n")
    monkeypatch.setenv("HORAE_CONFIG", str(config))
    for words in (["--from-journal"], ["--from-journal", str(config)]):
        assert horae("what-if", *words, "--since", "1d", "--json").json["history"] == answer["history"]
    shown = horae("what-if", "--from-journal", "--cluster", "v100:4x4")
    assert "4 of them ran on GPUs" in shown.out and "16 GPUs (as given)" in shown.out


def test_what_is_no_journal_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no journal here"):
        from_journal(tmp_path, WhatIf())
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(BadInput, match="nothing was written"):
        from_journal(tmp_path, WhatIf())
    (tmp_path / FILE).write_bytes(b"by hand" * 1000)
    with pytest.raises(BadInput, match="cannot be read as a journal"):
        from_journal(tmp_path, WhatIf())


def test_an_empty_a_newer_and_a_damaged_journal_are_refused_in_words(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    def change(folder: Path, what: str) -> None:
        with closing(sqlite3.connect(folder / FILE)) as db, db:
            db.execute(what)

    Journal(tmp_path / "empty").close()
    with pytest.raises(BadInput, match="saw no job"):
        from_journal(tmp_path / "empty", WhatIf())
    change(tmp_path / "empty", "PRAGMA user_version = 99")
    with pytest.raises(BadInput, match="written by a newer Horae"):
        from_journal(tmp_path / "empty", WhatIf())
    watched(tmp_path / "damaged").close()
    for what, text in (
        ("data = '{}'", "event [0-9]+ .seen. cannot"),
        ("data = '{'", "cannot be read as a journal"),
    ):
        change(tmp_path / "damaged", f"UPDATE events SET {what} WHERE kind = 'seen'")
        with pytest.raises(BadInput, match=text):
            from_journal(tmp_path / "damaged", WhatIf())


@pytest.mark.parametrize(
    "words",
    [[], ["--from-journal", "--from-sacct", "x"], ["--from-sacct", "x", "--since", "7d"], ["--from-sacct", "x", "y"],
     ["--from-journal", "--skip-bad"]],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(horae: Horae, words: list[str]) -> None:
    assert horae("what-if", *words).code == 2
