"""What tools on the way do to a log changes no number of it, and costs few."""

from __future__ import annotations

import pytest

from tests.profiler.mutations import MUTATIONS, STAMPED, fields, harm, usable, with_commas
from tests.profiler.others import OTHERS, PASTED, THIN, UNSEEN, labelled, read

LOGS = [e for path in (OTHERS, PASTED, UNSEEN) for e in labelled(path) if usable(e["log"])]
FEW = 30  #: logs that a mutation changes, from which every third is enough
#: What `name | ` before each line makes of a table, whose own columns `|` may part, is not known.
TABLES = "compose"
MAY_LOSE = {TABLES: 0.15, **dict.fromkeys(STAMPED, 0.11)}  #: shares of the logs


@pytest.mark.parametrize("name", MUTATIONS)
def test_no_number_changes_and_few_are_lost(name: str) -> None:
    some = [e for e in LOGS if MUTATIONS[name](e["log"]).strip() != e["log"].strip()]
    some = some[1::3] if len(some) > FEW else some
    assert some, "it changes none of the logs"
    found = {e["name"]: harm(e["log"], name) for e in some}
    lost = {log: away for log, (_, away) in found.items() if away}
    assert len(lost) <= MAY_LOSE.get(name, 0.03) * len(some), lost
    if name != TABLES:
        assert not {log: changed for log, (changed, _) in found.items() if changed}


def test_a_locale_with_commas_changes_no_number() -> None:
    changed = {e["name"]: with_commas(e["log"]) for path in (OTHERS, PASTED, UNSEEN) for e in labelled(path)}
    logs = {e["name"]: e["log"] for path in (OTHERS, PASTED, UNSEEN) for e in labelled(path)}
    some = {name: log for name, log in changed.items() if log is not None}
    assert len(some) >= 30, "too few logs print decimals alone"
    read_as = {name: (fields(read(log)), fields(read(logs[name]))) for name, log in some.items()}
    other = {name: pair for name, pair in read_as.items() if pair[0] != pair[1]}
    assert len(other) <= 0.03 * len(some), other
    assert all(now == [] for now, _ in other.values()), other  # lost, never another number


def test_commas_in_thousands_stay_thousands() -> None:
    run = read("".join(f"step {i} loss {3 - i / 100:.3f} tps 12,345\n" for i in range(1, 9)))[0]
    assert (run["loss"]["last"], run["throughput"]["median"]) == ([8, 2.92], 12345)


@pytest.mark.parametrize("entry", labelled(THIN)[::4], ids=lambda e: e["name"])
def test_a_log_cut_anywhere_tells_no_number_that_the_whole_does_not(entry: dict[str, object]) -> None:
    log = str(entry["log"])
    printed = log.replace(",", "")
    for cut in range(len(log) // 2, len(log), max(len(log) // 7, 1)):
        for run in fields(read(log[:cut])):
            for name in ("iterations.last", "epochs.last"):
                last = run[name]
                assert last is None or f"{last:g}" in printed or f"{last:.0f}" in printed, (cut, name, last)


def taking_turns(tags: tuple[str, str]) -> str:
    first = [f"{tags[0]}step {i} loss {3 - i / 100:.3f}" for i in range(1, 30)]
    second = [f"{tags[1]}step {i * 10} loss {5 - i / 50:.3f}" for i in range(1, 30)]
    return "".join(f"{a}\n{b}\n" for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("tags", [("", ""), ("a-1  | ", "b-1  | ")])
def test_two_logs_that_take_turns_tell_no_wrong_number(tags: tuple[str, str]) -> None:
    for run in read(taking_turns(tags)):
        assert run["loss"] is None and run["iterations"] is None
        assert "two logs" in " ".join(run["warnings"])


def test_two_logs_of_processes_that_are_named_are_two_runs() -> None:
    runs = read(taking_turns(("(T pid=1) ", "(T pid=2) ")))
    assert [(run["iterations"]["last"], run["loss"]["n"], run["loss"]["last"][1]) for run in runs] == [
        (29, 29, 2.71),
        (290, 29, 4.42),
    ]


def test_processes_that_count_on_together_are_one_run() -> None:
    lines = [f"(T pid={1 + i % 2}) step {10 * i} loss {3 - i / 100:.3f}\n" for i in range(1, 30)]
    (run,) = read("".join(lines))
    assert (run["iterations"]["last"], run["loss"]["n"]) == (290, 29)
