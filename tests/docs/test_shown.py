"""What the pages say that a command prints, it prints: their files are made, and their commands are run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HOWTO = Path(__file__).parents[2] / "docs" / "howto"


def told(folder: Path, *words: str) -> str:
    """What `horae ...` prints, errors as well, in this folder."""
    horae = [sys.executable, "-c", "from horae.cli import main; raise SystemExit(main())", *words]
    done = subprocess.run(
        horae, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120
    )
    return done.stdout + done.stderr


def listing(page: str, begins: str) -> str:
    """The first listing of a page that begins so."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if block.startswith(begins))


def held(decision: str) -> list[str]:
    """GPUs of the two jobs of the page's instance."""
    return re.findall(r"^(?:resnet|bert) +\w+ +(\d+)", decision, re.MULTILINE)


def test_the_weighted_example_is_decided_as_its_page_says(tmp_path: Path) -> None:
    page = (HOWTO / "decide.md").read_text()
    three = listing(page, "cluster:")
    four = three.replace("count: 3", "count: 4")
    files = {"three": three, "four": four, "elastic": four.replace("allowed: [4, 8]", "min: 2, max: 8")}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    decided = {name: told(tmp_path, "decide", f"{name}.yaml", "--policy", "max-min") for name in files}
    assert {name: held(text) for name, text in decided.items()} == {
        "three": ["8", "4"],
        "four": ["8", "8"],
        "elastic": ["10", "6"],
    }
    (share,) = re.findall(r"fails for vision: (\S+) of its fair share", decided["four"])
    assert f"vision is at {share} of its fair share" in page


def test_a_rule_file_is_refused_in_the_words_of_its_page(tmp_path: Path) -> None:
    page = (HOWTO / "profile.md").read_text()
    good = listing(page, "format:")
    unit, loss = listing(page, "my-trainer.yaml:").splitlines()
    wrong = {unit: good.replace("unit: ms", "unit: fortnight"), loss: good.replace("loss: 2.31", "loss: 9.99")}
    (tmp_path / "train.log").write_text("it=10/400 L=2.31 lr=1e-3 dt=12.5ms\n")
    for words, rules in wrong.items():
        (tmp_path / "my-trainer.yaml").write_text(rules)
        assert words in told(tmp_path, "profile", "--rules", "my-trainer.yaml", "train.log")


def test_a_row_that_is_wrong_is_told_as_on_the_page(tmp_path: Path) -> None:
    trace = listing((HOWTO / "simulate.md").read_text(), "$ cat jobs.csv\n").splitlines()[1:5]
    rows = [*trace, "d,30,10,1,ben", "e,40,10,1,ben", "f,50,10,0,ann"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    words = listing((HOWTO / "traces.md").read_text(), "jobs.csv:").strip()
    assert words in told(tmp_path, "simulate", "jobs.csv", "--cluster", "v100:1x4", "--policy", "srtf")
