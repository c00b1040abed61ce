"""Programs beyond the 52 labelled logs: what `others.yaml` tells of each excerpt is found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.profiler.others import FRAMEWORKS, FRESH, GPU, MANNERS, PASTED, SETS, UNSEEN, judge, labelled, read
from tests.profiler.score import Tally

#: Halves of sets that were held out until they were looked at.
LOOKED_AT = [name for name in SETS if name.endswith("held") and name != "frameworks_held"]
#: What is not read right yet, by the names of the fields. A field that comes right is taken off this list.
KNOWN = {
    "seconds-per-window": {"iteration_time.median"},  # of a step or of the fifty since the line before: it does not say
    "tf-object-detection-2": {"format"},  # the values stand on lines that the generic reader reads
    "hf-trainer-tqdm-dicts": {"iterations.last"},  # the bar before the newest dict is drawn again by the next step
    "accelerate-no-trainer": {"iteration_time.median"},  # two stamped lines with an evaluation between them
    "sentence-transformers-old": {"iteration_time.median"},  # by the outer bar, 5 % above the inner one
    "coqui-tts": {"validation.loss.last[0]", "validation.loss.last[1]"},
    # the states of one bar are one position of a running average
    "yolov5-lines": {"loss.n", "loss.first[1]"},
    "horovod-wsl-bars": {"loss.n", "loss.first[1]"},
    # its bars are of another library, and the one of the validation looks the same
    "mozilla-deepspeech": {"iteration_time.median"},
    # counts in percent alone
    "fasttext": {"runs", "throughput.unit", "throughput.median"},
    "coqui-hifigan": {"loss.last[1]"},  # the total is called loss_0 and stands below its parts
    "deepspeed-behind-a-bar": {"iteration_time.median"},  # of a bar and a line behind it the line counts
    # of a training of a second and a half, by a bar that remembers its first steps
    "hf_resumed": {"iteration_time.median"},
    # each cell of its rows stands on a line of its own
    "html-progress-table": {
        "runs",
        "iterations.last",
        "loss.last[0]",
        "loss.last[1]",
        "loss.n",
        "validation.loss.last[0]",
        "validation.loss.last[1]",
    },
    "one-letter-names": {"iterations.last", "iterations.total"},
    # sorted keys: the counter stands below its values
    "rllib-sorted-keys": {
        "runs",
        "iterations.last",
        "iterations.scope",
        "loss.last[0]",
        "loss.last[1]",
        "iteration_time.median",
    },
}


@pytest.mark.parametrize(
    "entry",
    [*labelled(), *labelled(PASTED), *labelled(UNSEEN), *labelled(MANNERS), *labelled(FRAMEWORKS), *labelled(GPU)],
    ids=lambda e: e["name"],
)
def test_other(entry: dict[str, Any]) -> None:
    """All that the label tells, but for what is known to be missed."""
    tally = judge(entry, read(entry["log"]))
    missed = {wrong.split(":")[0]: wrong for wrong in tally.off}
    assert set(missed) == KNOWN.get(entry["name"], set()), missed


@pytest.mark.parametrize(("held", "right", "wrong"), [(LOOKED_AT, 0.93, 0.01), (["frameworks_held"], 0.95, 0.01)])
def test_those_held_out(held: list[str], right: float, wrong: float) -> None:
    """Halves that no reader was changed for at first, and the newest of them: a wrong number counts ten times."""
    total = Tally()
    for entry in (entry for name in held for entry in labelled(SETS[name])):
        total.add(judge(entry, read(entry["log"])))
    assert total.right >= right * total.told, total.off
    assert len(total.wrong) <= wrong * total.told, total.wrong


@pytest.mark.parametrize("entry", labelled(FRESH), ids=lambda e: e["name"])
def test_of_programs_never_met_no_number_is_wrong(entry: dict[str, Any]) -> None:
    assert not judge(entry, read(entry["log"])).wrong
