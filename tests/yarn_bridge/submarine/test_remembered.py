"""Commands and files as people write them, none of which was tried before its label was written: `remembered.yaml`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.job_form import JobForm
from policy.model import BadInput
from yarn_bridge.submarine import Translation, translate
from yarn_bridge.submarine.table import Fate

CORPUS = yaml.safe_load(Path(__file__).with_name("remembered.yaml").read_text())
BOTH = [*CORPUS["commands"], *CORPUS["files"]]


def facts(found: Translation) -> dict[str, Any]:
    """What is handed in, in the words of the labels."""
    job = found.job
    JobForm.model_validate(job)
    service = json.loads(job["extra"].get("yarn.service", "{}"))
    gpus = job["gpus"] if isinstance(job["gpus"], int) else job["gpus"]["requested"]
    workers = job.get("workers", gpus)
    return {
        "gpus": gpus,
        "workers": workers,
        "env": job["env"],
        "queue": job["extra"].get("yarn.queue"),
        "memory_mib": job["memory_per_gpu"] * max(gpus // workers, 1) >> 20,
        "command": job["command"][-1],
        "service": service,
        "files": [each["dest_file"] for each in service.get("configuration", {}).get("files", ())],
        "idle": {line.option for line in found.lines if line.fate is Fate.NOTHING},
    }


@pytest.mark.parametrize("number", range(len(BOTH)))
def test_each_becomes_what_its_label_says(number: int, tmp_path: Path) -> None:
    sample = BOTH[number]
    (tmp_path / "JOB.yaml").write_bytes(sample.get("file", "").encode())
    words = shlex.split(sample["words"]) if "words" in sample else ["-f", str(tmp_path / "JOB.yaml")]
    if (named := sample.get("refused")) is not None:
        with pytest.raises(BadInput) as caught:
            translate(words, "ann")
        assert named in str(caught.value)
        assert caught.value.remedy
        return
    made = facts(translate(words, "ann"))
    assert made["env"].items() >= sample.get("env", {}).items()
    assert made["idle"] >= set(sample.get("idle", ()))
    for name in ("gpus", "workers", "queue", "memory_mib", "command", "files", "service"):
        assert name not in sample or made[name] == sample[name], (name, made[name])
