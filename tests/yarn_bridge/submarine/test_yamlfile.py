"""The file of `-f`: the same job as the command line, and errors with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.model import BadInput
from yarn_bridge.submarine import translate
from yarn_bridge.submarine.table import Fate

TENSORFLOW = """\
spec:
  name: mnist
  job_type: tensorflow
  framework: TensorFlow

configs:
  input_path: hdfs:///data/mnist
  checkpoint_path: hdfs:///user/ann/ck
  saved_model_path: hdfs:///user/ann/model
  docker_image: site/tf:1.10
  wait_job_finish: true
  envs:
    OMP_NUM_THREADS: 4
    VERSION: 1.10
  localizations:
    - hdfs:///user/ann/train.py:./train.py
  quicklinks:

scheduling:
  queue: gpu

roles:
  worker:
    resources: memory=20480M,vcores=4,gpu=1
    replicas: 3
    launch_cmd: python train.py --in %input_path%
    envs: {OMP_NUM_THREADS: 8}
  ps:
    resources: memory=2G,vcores=1
    replicas: 1
    launch_cmd: python train.py --ps
    docker_image: site/tf:1.10
    envs: {ROLE: server}

security:
  keytab: /etc/ann.keytab
  principal: ann/gw@LAB
  distribute_keytab: false
"""
WORDS = [
    "--framework", "tensorflow", "--name", "mnist", "--input_path", "hdfs:///data/mnist",
    "--checkpoint_path", "hdfs:///user/ann/ck", "--saved_model_path", "hdfs:///user/ann/model",
    "--docker_image", "site/tf:1.10", "--wait_job_finish", "--env", "OMP_NUM_THREADS=4", "--env", "VERSION=1.10",
    "--localization", "hdfs:///user/ann/train.py:./train.py", "--queue", "gpu",
    "--worker_resources", "memory=20480M,vcores=4,gpu=1", "--num_workers", "3",
    "--worker_launch_cmd", "python train.py --in %input_path%", "--ps_resources", "memory=2G,vcores=1",
    "--num_ps", "1", "--ps_launch_cmd", "python train.py --ps", "--ps_docker_image", "site/tf:1.10",
    "--keytab", "/etc/ann.keytab", "--principal", "ann/gw@LAB",
]  # fmt: skip


def put(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return str(path)


def refused(tmp_path: Path, text: str, *words: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        translate(["-f", put(tmp_path, text), *words], "ann")
    return caught.value


def test_the_file_says_what_the_command_line_says(tmp_path: Path) -> None:
    without_role_envs = "\n".join(line for line in TENSORFLOW.splitlines() if "envs: {" not in line)
    by_file = translate(["-f", put(tmp_path, without_role_envs)], "ann")
    by_words = translate(WORDS, "ann")
    assert by_file.job == by_words.job
    assert by_file.wait and by_words.wait


def test_a_role_has_variables_of_its_own_and_texts_stay_texts(tmp_path: Path) -> None:
    job = translate(["-f", put(tmp_path, TENSORFLOW)], "ann").job
    assert '"env": {"ROLE": "server"}' in job["env"].pop("HORAE_SERVERS")
    assert job["env"] == {"OMP_NUM_THREADS": "8", "VERSION": "1.10", "HORAE_FRAMEWORK": "tensorflow"}


def test_keys_in_the_other_spelling(tmp_path: Path) -> None:
    camel = TENSORFLOW.replace("launch_cmd", "launchCmd").replace("input_path:", "inputPath:")
    assert translate(["-f", put(tmp_path, camel)], "ann").job == translate(["-f", put(tmp_path, TENSORFLOW)], "ann").job


def test_mxnet_with_its_scheduler_and_elastic_workers_of_ours(tmp_path: Path) -> None:
    scheduler = "  scheduler: {replicas: 1, resources: 'memory=1G,vcores=1', launch_cmd: s}\n\nsecurity:"
    text = TENSORFLOW.replace("TensorFlow", "mxnet").replace("\nsecurity:", scheduler)
    assert '"role": "scheduler"' in translate(["-f", put(tmp_path, text)], "ann").job["env"]["HORAE_SERVERS"]
    elastic = "spec: {name: a}\nconfigs:\n  input_path: x\nroles:\n  worker:\n    replicas: 2\n    min_replicas: 1\n"
    elastic += "    max_replicas: 4\n    resources: memory=1G,vcores=1,gpu=1\n    launch_cmd: t\n"
    assert translate(["-f", put(tmp_path, elastic)], "ann").job["gpus"] == {"requested": 2, "min": 1, "max": 4}


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "message"),
    [
        ("  queue: gpu", "  queu: gpu", 20, "scheduling.queu", "no key"),
        ("scheduling:", "sheduling:", 19, "sheduling", "no key"),
        ("vcores=4,gpu", "vcores=four,gpu", 24, "roles.worker.resources", "is no KEY=AMOUNT"),
        ("replicas: 3", "replicas: 3.0", 25, "roles.worker.replicas", "not a whole number"),
        ("wait_job_finish: true", "wait_job_finish: yes", 11, "configs.wait_job_finish", "neither true nor false"),
        ("  localizations:", "  mounts: [/a:/a]\n  localizations:", 15, "configs.mounts", "never used"),
        ("    envs: {ROLE", "    mounts: [/a:/a]\n    envs: {ROLE", 33, "roles.ps.mounts", "never used"),
        ("  quicklinks:", "  quicklinks: [ui=http://master-0:80]", 17, "configs.quicklinks[0]", "refused"),
        ("\nsecurity:", "\ntensorBoard: {docker_image: x}\nsecurity:", 35, "tensorBoard", "refused"),
        ("framework: TensorFlow", "framework: caffe", 4, "spec.framework", "no framework"),
        ("framework: TensorFlow", "framework: pytorch", 29, "roles.ps.resources", "is not for pytorch"),
        ("name: mnist", "name: [mnist]", 2, "spec.name", "is not one value"),
        ("    - hdfs:///user/ann/train.py:./train.py", "    a: b", 15, "configs.localizations", "is not a list"),
        ("  envs:\n    OMP_NUM_THREADS: 4\n    VERSION: 1.10", "  envs: [A=b]", 12, "configs.envs", "not a mapping"),
        ("envs: {ROLE: server}", "envs: 3", 33, "roles.ps.envs", "not a mapping"),
        ("scheduling:\n  queue: gpu", "scheduling: gpu", 19, "scheduling", "not a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, old: str, new: str, line: int, field: str, message: str
) -> None:
    assert old in TENSORFLOW
    error = refused(tmp_path, TENSORFLOW.replace(old, new), "--strict")
    assert message in error.message
    assert (error.where, error.line, error.field) == (str(tmp_path / "job.yaml"), line, field)
    assert error.remedy


def test_keys_that_submarine_never_used_are_said(tmp_path: Path) -> None:
    """As the samples of its own repository have them."""
    text = TENSORFLOW.replace("  localizations:", "  mounts:\n    - /etc/passwd:/etc/passwd:rw\n  localizations:")
    text = text.replace("  quicklinks:", "  quicklinks:\n    - ui=http://master-0:80")
    found = translate(["-f", put(tmp_path, text)], "ann")
    told = {line.option: line.text for line in found.lines if line.fate is Fate.NOTHING}
    assert told["configs.mounts"] == "no effect: it was read by Submarine and never used"
    assert "no link would hold" in told["configs.quicklinks[0]"]
    assert found.job == translate(["-f", put(tmp_path, TENSORFLOW)], "ann").job


def test_an_option_stands_in_the_file_or_on_the_command_line(tmp_path: Path) -> None:
    assert "is also in" in refused(tmp_path, TENSORFLOW, "--queue", "x").message
    assert "is also in" in refused(tmp_path, TENSORFLOW, "--env", "A=b").message


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert "not a Submarine file" in refused(tmp_path, "- a\n- b\n").message
    assert "has no section 'configs'" in refused(tmp_path, "spec: {name: a}\nroles:\n").message
    assert "stands twice" in refused(tmp_path, "spec: {name: a, name: b}\n").message
    with pytest.raises(BadInput, match="cannot be read"):
        translate(["-f", str(tmp_path / "none.yaml")], "ann")
