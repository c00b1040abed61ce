"""Submarine's own commands and YAML files, read out of a checkout of its repository: they are not kept here.

`samples.yaml` beside this lists each: where it stands, the SHA-256 of its text, and what becomes of it. `read` finds
them again; `job_words` has a shell run a command as it is written, with stand-ins for the programs, variables and
files that it names, and gives the words after `job run`.

    python -m tests.yarn_bridge.submarine.samples CHECKOUT      # says what became of each, and writes the list anew
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from horae.job_form import JobForm
from policy.model import BadInput
from yarn_bridge.submarine import Translation, translate

LIST = Path(__file__).with_name("samples.yaml")
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "submarine-samples.md"
REPOSITORY, LICENCE = "https://github.com/apache/submarine", "Apache-2.0"
RELEASES = {
    "0.3": "rel/release-0.3.0",
    "0.4": "rel/release-0.4.0",
    "0.5": "rel/release-0.5.0",
    "0.6": "rel/release-0.6.0",
}
#: What a command names and its reader is to have.
VARIABLES = {
    "JAVA_CMD": "java",
    "WORKER_CMD": "myvenv.zip/venv/bin/python mnist_distributed.py",
    "HADOOP_HOME": "/opt/hadoop",
    "HADOOP_COMMON_HOME": "/opt/hadoop",
    "HADOOP_CONF_PATH": "/opt/hadoop/etc/hadoop",
    "SUBMARINE_HOME": "/opt/submarine",
    "SUBMARINE_VERSION": "0.5.0",
    "SUBMARINE_HADOOP_VERSION": "3.1",
    "HADOOP_VERSION": "3.1",
    "SUBMARINE_PATH": "path-to",
    "MNIST_PATH": "path-to",
    "CIFAR10_PATH": "path-to",
    "SUBMARINE_JAR": "submarine-all.jar",
    "dfs_name_service": "ns",
    "THCHS30_PATH": "/data/thchs30",
    "SGE_CFG_PATH": "/cfg",
    "WORKER_NUM": "2",
}
PROGRAMS = ("java", "yarn")  #: say which words they were given
QUIET = ("hadoop", "hdfs", "sudo")  #: say nothing


#: Of the half that was to be held, and seen in a search before.
LOOKED_AT = frozenset({"TestAndTroubleshooting.md:21", "RunningDistributedCifar10TFJobsWithYarnService.md:73"}) | {
    "RunningDistributedCifar10TFJobsWithYarnService.md:94", "YARNRuntimeGuide.md:65", "YARNRuntimeGuide.md:245",
    "YARNRuntimeGuide.md:287",
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    kind: str  #: command or file
    text: str
    where: str  #: path:line of the first place
    mended: bool = False  #: a line's missing backslash was put there
    releases: list[str] = field(default_factory=list)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def half(self) -> str:
        """Which half was looked at while the program was changed: by the hash, so that nobody chose."""
        chosen = int(self.sha256[0], 16) % 2 and self.where.rpartition("/")[2] not in LOOKED_AT
        return "held" if chosen else "seen"


def read(checkout: Path) -> list[Sample]:
    """All of the four releases, each text once, in the order of their places."""
    found: dict[str, Sample] = {}
    for release, tag in RELEASES.items():
        names = _git(checkout, "grep", "-l", "-E", "job run|launch_cmd", tag).split()
        for path in (name.partition(":")[2] for name in names):
            if not path.endswith((".md", ".sh", ".yaml", ".yml")):
                continue
            text = _git(checkout, "show", f"{tag}:{path}")
            for line, kind, sample, mended in _samples(path, text):
                one = Sample(kind, sample, f"{path}:{line}", mended)
                known = found.setdefault(one.sha256, one)
                if release not in known.releases:
                    known.releases.append(release)
    return sorted(found.values(), key=lambda each: (each.releases[0], each.where))


def _git(checkout: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=True).stdout


def _samples(path: str, text: str) -> Iterator[tuple[int, str, str, bool]]:
    if path.endswith((".yaml", ".yml")):
        if re.search(r"^\s*launch_?[cC]md:", text, re.MULTILINE):
            yield 1, "file", text, False
        return
    for start, block in _blocks(text) if path.endswith(".md") else [(1, text)]:
        for line, command, mended in _commands(block):
            yield start + line, "command", command, mended


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """What stands between fences."""
    lines, start = text.split("\n"), 0
    for number, line in enumerate(lines, 1):
        if not re.match(r"\s*(```|~~~)", line):
            continue
        if start:
            yield start, "\n".join(lines[start - 1 : number - 1])
        start = 0 if start else number + 1


def _commands(block: str) -> Iterator[tuple[int, str, bool]]:
    """Commands with `job run` in them, with the lines that belong to them."""
    lines, at = block.split("\n"), 0
    while at < len(lines):
        first, mended = at, False
        taken = [lines[at]]
        while at + 1 < len(lines):
            continued = lines[at].rstrip().endswith("\\")
            option = re.match(r"\s+-{1,2}[a-z]", lines[at + 1])
            if not continued and not (option and re.search(r"\bjob run\b", "\n".join(taken))):
                break
            if not continued:
                taken[-1], mended = f"{taken[-1]} \\", True
            at += 1
            taken.append(lines[at])
        text = "\n".join(taken)
        if re.search(r"\bjob run\b", text) and not text.lstrip().startswith("#"):
            yield first, text, mended
        at += 1


def job_words(sample: Sample, folder: Path) -> list[str]:
    """What stands behind `job run`, as a shell makes words of it. Raises ValueError for what is no command."""
    programs, said = folder / "bin", folder / "said.json"
    programs.mkdir(exist_ok=True)
    said.unlink(missing_ok=True)
    tell = f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open({str(said)!r}, 'w'))\n"
    for name in (*PROGRAMS, "..."):
        (programs / name).write_text(tell)
    for name in QUIET:
        (programs / name).write_text("#!/bin/sh\n")
    for each in programs.iterdir():
        each.chmod(0o755)
    text = re.sub(r"<([\w -]+)>", lambda match: match[1].replace(" ", "-"), sample.text)
    text = re.sub(r"^ ?\.\.\. ", "yarn ", text)
    text = re.sub(r"\\ +\n", "\\\\\n", text)
    text = re.sub(r"^\$\{SUBMARINE_HOME\}/conf: ", "CLASSPATH=${SUBMARINE_HOME}/conf: ", text)
    env = {**VARIABLES, "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(["bash", "-c", text], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if not said.exists():
        raise ValueError(
            f"no command: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'nothing ran'}"
        )
    words: list[str] = json.loads(said.read_text())
    at = next((i for i in range(len(words) - 1) if words[i : i + 2] == ["job", "run"]), None)
    if at is None or at + 2 == len(words):
        raise ValueError("no command: no option stands behind `job run`")
    return words[at + 2 :]


def translation(sample: Sample, folder: Path, user: str = "ann") -> Translation:
    """Raises BadInput, ValueError."""
    if sample.kind == "command":
        words = job_words(sample, folder)
    else:
        (folder / "job.yaml").write_text(sample.text)
        words = ["-f", str(folder / "job.yaml")]
    found = translate(words, user)
    JobForm.model_validate(found.job)
    return found


def verdict(sample: Sample, folder: Path) -> dict[str, Any]:
    """What becomes of it: `runs`, `refused` with why, or `no command`."""
    try:
        found = translation(sample, folder)
    except BadInput as error:
        where = f"{error.field}: " if error.field else ""
        return {"verdict": "refused", "why": f"{where}{error.message}"}
    except ValueError as error:
        text = str(error).replace(str(folder), "")
        return {"verdict": "no command", "why": re.sub(r"bash: .*line \d+: ", "", text).removeprefix("no command: ")}
    gpus = found.job["gpus"]
    idle = [line.option.lstrip("-") for line in found.lines if line.fate == "no effect"]
    return {"verdict": "runs", "gpus": gpus, "workers": found.job.get("workers", gpus), "idle": _grouped(idle)}


def _grouped(options: list[str]) -> list[str]:
    return sorted({re.sub(r"\[\d+\]", "", option) for option in options})


def known() -> list[dict[str, Any]]:
    return list(yaml.safe_load(LIST.read_text())["samples"])


def row(sample: Sample, folder: Path) -> dict[str, Any]:
    about = {"where": sample.where, "releases": sample.releases, "kind": sample.kind, "half": sample.half}
    mended = {"mended": True} if sample.mended else {}
    return {**about, "sha256": sample.sha256, **mended, **verdict(sample, folder)}


def page(rows: list[dict[str, Any]]) -> str:
    """The table of the guide."""
    ran = [each for each in rows if each["verdict"] == "runs"]
    lines = [_HEAD.format(rows=len(rows), ran=len(ran), held=sum(each["half"] == "held" for each in rows))]
    for each in rows:
        place = each["where"].rpartition("/")[2] + (" `+\\`" if each.get("mended") else "")
        if each["verdict"] == "runs":
            becomes, text = f"{each['gpus']} GPUs, {each['workers']} processes", ", ".join(each["idle"]) or "-"
        else:
            becomes, text = each["verdict"], each["why"]
        text = text.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {place} | {', '.join(each['releases'])} | {each['half']} | {becomes} | {text} |")
    return "\n".join(lines) + "\n"


_HEAD = f"""# Submarine's own commands and files

Every `job run` command and every YAML file of jobs in the documentation, the scripts and the tests of Apache Submarine
0.3 to 0.6 ({REPOSITORY}, {LICENCE}), as it is written there: {{rows}} different ones, of which {{ran}}
are taken. The others are no commands (no shell reads them as such, or they stop in the middle), or Submarine refuses
them itself. This page is made by the test that reads them.

A row says where a sample stands first, in which releases, how many GPUs and processes come of it, and which of its
options have no effect here. `+\\` means that lines of it lack their backslash, which is put there. Placeholders
(`<image>`), shell variables and programs of the reader's (`java`, `yarn`, `hadoop`) are replaced by stand-ins. {{held}}
of the samples (`held`) were not looked at before all of them were tried for the first time.

Each that is taken has run on a real Hadoop 3.4.2, all its roles, with stand-ins for images, local files, data sets, the
queue's name and the size of nodes. All came to their end but Kaldi's, whose launch command no shell reads: a `;` is
missing before its `then`.

| sample | releases | half | becomes | no effect, or why not |
|---|---|---|---|---|"""


def main(checkout: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(sample, Path(folder)) for sample in read(Path(checkout))]
    head = (
        "# Made by samples.py: where Submarine's commands and files stand and what becomes of each, not their text.\n"
    )
    LIST.write_text(head + yaml.safe_dump({"samples": rows}, sort_keys=False, width=118))
    PAGE.write_text(page(rows))
    for each in rows:
        print(each["verdict"], each["where"].rpartition("/")[2], each.get("why", ""), sep="\t")


if __name__ == "__main__":
    main(os.fspath(sys.argv[1]))
