"""How much of the excerpts is read right: programs beyond the 52 labelled logs.

    python -m tests.profiler.others [--set NAME] [--excerpts FOLDER] [--json FILE] [--verbose] [--generic]

Counted is every field that a label tells. A run that was not found, or is one too many, has all its fields wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from profiler.model import RunSummary
from tests.profiler.score import Tally, matches

OTHERS = Path(__file__).with_name("others.yaml")
PASTED = Path(__file__).with_name("pasted.yaml")
UNSEEN = Path(__file__).with_name("unseen.yaml")
HELD = Path(__file__).with_name("unseen_held.yaml")
THIN = Path(__file__).with_name("thin.yaml")
WORDLESS = Path(__file__).with_name("wordless.yaml")
WORDLESS_HELD = Path(__file__).with_name("wordless_held.yaml")
FRESH = Path(__file__).with_name("fresh.yaml")
FRESH_HELD = Path(__file__).with_name("fresh_held.yaml")
STRANGE = Path(__file__).with_name("strange.yaml")
STRANGE_HELD = Path(__file__).with_name("strange_held.yaml")
FOREIGN = Path(__file__).with_name("foreign.yaml")
FOREIGN_HELD = Path(__file__).with_name("foreign_held.yaml")
DISTANT = Path(__file__).with_name("distant.yaml")
DISTANT_HELD = Path(__file__).with_name("distant_held.yaml")
THREADS_HELD = Path(__file__).with_name("threads_held.yaml")
POSTED = Path(__file__).with_name("posted.yaml")
POSTED_HELD = Path(__file__).with_name("posted_held.yaml")
MANNERS = Path(__file__).with_name("manners.yaml")
MANNERS_HELD = Path(__file__).with_name("manners_held.yaml")
FRAMEWORKS = Path(__file__).with_name("frameworks.yaml")
FRAMEWORKS_HELD = Path(__file__).with_name("frameworks_held.yaml")
FOUND = Path(__file__).with_name("found.yaml")
FOUND_HELD = Path(__file__).with_name("found_held.yaml")
PUBLIC = Path(__file__).with_name("public.yaml")
PUBLIC_HELD = Path(__file__).with_name("public_held.yaml")
MINED = Path(__file__).with_name("mined.yaml")
MINED_HELD = Path(__file__).with_name("mined_held.yaml")
DRAWN = Path(__file__).with_name("drawn.yaml")
FIFTH = Path(__file__).with_name("fifth.yaml")
SIXTH = Path(__file__).with_name("sixth.yaml")
SEVENTH = Path(__file__).with_name("seventh.yaml")
EIGHTH = Path(__file__).with_name("eighth.yaml")
NINTH = Path(__file__).with_name("ninth.yaml")
TENTH = Path(__file__).with_name("tenth.yaml")
ELEVENTH = Path(__file__).with_name("eleventh.yaml")
TWELFTH = Path(__file__).with_name("twelfth.yaml")
GPU = Path(__file__).with_name("gpu.yaml")
#: Labels of excerpts whose text is not ours to keep: where each stands is told, a folder of NAME.log files is read.
ELSEWHERE = {
    **{"found": FOUND, "found_held": FOUND_HELD, "public": PUBLIC, "public_held": PUBLIC_HELD},
    **{"mined": MINED, "mined_held": MINED_HELD, "drawn": DRAWN, "fifth": FIFTH, "sixth": SIXTH},
    **{"seventh": SEVENTH, "eighth": EIGHTH, "ninth": NINTH, "tenth": TENTH},
    **{"eleventh": ELEVENTH, "twelfth": TWELFTH},
}
SETS = {
    **{"others": OTHERS, "pasted": PASTED, "unseen": UNSEEN, "held": HELD, "thin": THIN},
    **{"wordless": WORDLESS, "wordless_held": WORDLESS_HELD, "fresh": FRESH, "fresh_held": FRESH_HELD},
    **{"strange": STRANGE, "strange_held": STRANGE_HELD, "foreign": FOREIGN, "foreign_held": FOREIGN_HELD},
    **{"distant": DISTANT, "distant_held": DISTANT_HELD, "threads_held": THREADS_HELD},
    **{"posted": POSTED, "posted_held": POSTED_HELD, "manners": MANNERS, "manners_held": MANNERS_HELD},
    **{"frameworks": FRAMEWORKS, "frameworks_held": FRAMEWORKS_HELD, "gpu": GPU},
}


def labelled(path: Path = OTHERS) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def with_text(entries: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The entries with the text of NAME.log, which must be the text that was labelled."""
    whole = []
    for entry in entries:
        text = (folder / f"{entry['name']}.log").read_bytes()
        if hashlib.sha256(text).hexdigest() != entry["sha256"]:
            raise SystemExit(f"{folder}/{entry['name']}.log: not the text that was labelled ({entry['source']})")
        whole.append({**entry, "log": text})
    return whole


def leaves(want: Any, got: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    """(name, wanted, found) of every single thing that a label tells."""
    if isinstance(want, dict) and not want.keys() & {"any", "between"}:
        for key, value in want.items():
            yield from leaves(value, got.get(key) if isinstance(got, dict) else None, f"{at}.{key}" if at else key)
    elif isinstance(want, list):
        for i, value in enumerate(want):
            yield from leaves(value, got[i] if isinstance(got, list) and i < len(got) else None, f"{at}[{i}]")
    else:
        yield at, want, got


def right(want: Any, got: Any) -> bool:
    if want == "*":
        return got is not None
    if isinstance(want, dict) and "any" in want:
        return any(right(way, got) for way in want["any"])
    if isinstance(want, dict) and "between" not in want:  # one of several ways to read a whole group
        return got is not None and all(right(wanted, found) for _, wanted, found in leaves(want, got, ""))
    if isinstance(want, float) and isinstance(got, int | float):
        return bool(abs(got - want) <= 1e-4 * abs(want) + 1e-12)
    return matches(want, got)


def judge(entry: dict[str, Any], runs: list[dict[str, Any]]) -> Tally:
    counts = entry.get("runs_any", [len(entry["runs"])])
    if not runs and 0 in counts:
        return Tally(right=1)
    tally = Tally()
    tally.judge("runs", len(runs) in counts, len(entry["runs"]), len(runs) or None)
    for i, want in enumerate(entry["runs"]):
        for name, wanted, found in leaves(want, runs[i] if i < len(runs) else None, ""):
            if wanted == "*" and found is not None:
                continue
            ok = right(wanted, found)
            if ok:
                tally.right += 1
            else:
                tally.judge(name, False, wanted, found)
    return tally


def summaries(log: str | bytes, *, generic: bool = False) -> list[RunSummary]:
    from profiler.estimates.summary import summarise
    from profiler.rules.book import load
    from profiler.runs.reader import LogReader

    book = load()
    reader = LogReader(book.without(book.formats) if generic else book)
    reader.feed(log.encode() if isinstance(log, str) else log)
    return [summarise(run) for run in reader.runs()]


def read(log: str | bytes, *, generic: bool = False) -> list[dict[str, Any]]:
    return [run.to_json() for run in summaries(log, generic=generic)]


def tallies(entries: list[dict[str, Any]], reading: Callable[[Any], list[dict[str, Any]]]) -> dict[str, Tally]:
    return {entry["name"]: judge(entry, reading(entry["log"])) for entry in entries}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.profiler.others", description="excerpts read right")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--generic", action="store_true", help="no rules at all")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--set", choices=SETS | ELSEWHERE, default="others")
    parser.add_argument("--excerpts", type=Path, help="the folder of NAME.log files of a set that has no text")
    options = parser.parse_args()
    total, whole = Tally(), 0
    entries = [e for e in labelled((SETS | ELSEWHERE)[options.set]) if options.only in e["name"]]
    if options.set in ELSEWHERE:
        if options.excerpts is None:
            parser.error(f"--set {options.set} wants --excerpts FOLDER")
        entries = with_text(entries, options.excerpts)
    found = tallies(entries, lambda log: read(log, generic=options.generic))
    for name, tally in found.items():
        total.add(tally)
        whole += not tally.off
        if tally.off and options.verbose:
            print(name, *tally.off, sep="\n    ")
    share = total.right / max(total.told, 1)
    print(f"{whole} of {len(entries)} excerpts wholly right; {total.right} of {total.told} fields = {share:.3f}")
    print(f"{len(total.wrong)} wrong, {len(total.missing)} missing")
    if options.json:
        counts = {"excerpts": len(entries), "whole": whole, "right": total.right, "told": total.told}
        off = {"wrong": {n: t.wrong for n, t in found.items()}, "missing": {n: t.missing for n, t in found.items()}}
        options.json.write_text(json.dumps(counts | off, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
