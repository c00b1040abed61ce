"""From a job to its YARN service, its components and what its workers run."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import Never
from horae.spec import JobSpec
from policy.model import GpuRange
from yarn_bridge.clients.services import NAME
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import Record
from yarn_bridge.options import parse_options

OPTIONS = parse_options({"resource_manager": ["http://rm:8088"], "webhdfs": ["http://nn:9870"], "queue": "gpu"})
SPEC = JobSpec("train", ("python3", "train.py", "--name", "it's $HOME"), GpuRange(2, 1, 8), checkpoint="hdfs://nn/c")


def record(exact: bool = True) -> Record:
    components = shapes.components_for(["n2", "n1"], exact)
    return Record("train", "alice", "h-train", 0.0, allocation=(("n2", 2),), components=components)


def test_every_job_id_has_a_service_name_of_its_own() -> None:
    ids = ["a", "A", "a-", "-", "sweep/1".replace("/", "."), "x" * 200, "a_b", "a.b", "Ü".encode().hex()]
    names = [shapes.service_name(job) for job in ids]
    assert len(set(names)) == len(names)
    assert all(NAME.fullmatch(name) for name in names)


def test_one_component_a_node_most_of_them_at_nought() -> None:
    body = shapes.service_spec(record(), SPEC, OPTIONS, "/user/horae/horae/jobs/train", "/lib/horae.pyz")
    found = {each["name"]: each for each in body["components"]}
    assert {name: each["number_of_containers"] for name, each in found.items()} == {"w0": 0, "w1": 2}
    constraint = found["w1"]["placement_policy"]["constraints"][0]
    assert constraint["node_attributes"] == {"nm.yarn.io/host": ["n2"]}
    assert found["w1"]["resource"]["additional"]["yarn.io/gpu"]["value"] == 1
    assert body["queue"] == "gpu"


def test_without_node_attributes_one_component_takes_all() -> None:
    body = shapes.service_spec(record(exact=False), SPEC, OPTIONS, "/jobs/train", "/lib/horae.pyz")
    (only,) = body["components"]
    assert (only["number_of_containers"], "placement_policy" in only) == (2, False)
    assert shapes.covers(record(exact=False).components, {"any": 3})
    assert not shapes.covers(record().components, {"n3": 1})


def test_what_a_front_end_asks_of_the_service_is_merged() -> None:
    fpga = {"additional": {"yarn.io/fpga": {"value": 1, "unit": ""}}}
    extra = {
        "yarn.queue": "root.other",
        "yarn.service": json.dumps({"configuration": {"env": {"A": "1"}, "files": [{"dest_file": "x"}]}}),
        "yarn.worker": json.dumps({"artifact": {"id": "image", "type": "DOCKER"}, "resource": fpga}),
    }
    spec = replace(SPEC, extra=extra)
    shapes.check("train", spec)
    body = shapes.service_spec(record(), spec, OPTIONS, "/jobs/train", "/lib/horae.pyz")
    assert (body["name"], body["queue"]) == ("h-train", "root.other")
    assert body["configuration"]["env"] == {"A": "1"}
    assert [each["dest_file"] for each in body["configuration"]["files"]] == ["horae.pyz", "launch.sh", "x"]
    worker = body["components"][1]
    assert (worker["artifact"]["id"], worker["number_of_containers"]) == ("image", 2)
    assert set(worker["resource"]["additional"]) == {"yarn.io/gpu", "yarn.io/fpga"}


@pytest.mark.parametrize(
    ("name", "asked", "word"),
    [
        ("yarn.worker", {"resource": {"additional": {"yarn.io/gpu": {"value": 4, "unit": ""}}}}, "yarn.io/gpu"),
        ("yarn.worker", {"resource": {"additional": {"yarn.io/gpu-a100": {"value": 4}}}}, "yarn.io/gpu-a100"),
        ("yarn.worker", {"resource": {"memory": "65536"}}, "resource.memory"),
        ("yarn.worker", {"resource": {"cpus": 32}}, "resource.cpus"),
        ("yarn.worker", {"resource": {"profile": "huge"}}, "resource.profile"),
        ("yarn.worker", {"number_of_containers": 99}, "number_of_containers"),
        ("yarn.worker", {"restart_policy": "NEVER"}, "restart_policy"),
        ("yarn.worker", {"placement_policy": {}}, "placement_policy"),
        ("yarn.worker", {"artifact": {"type": "SERVICE", "id": "larger"}}, "artifact.type 'SERVICE'"),
        ("yarn.service", {"artifact": {"type": "SERVICE", "id": "larger"}}, "artifact.type 'SERVICE'"),
        ("yarn.service", {"queue": "root.prod"}, "queue"),
        ("yarn.service", {"configuration": {"properties": {"yarn.service.am-resource.memory": "9"}}}, "am-resource"),
        ("yarn.service", {"configuration": "large"}, "configuration is no object"),
        ("yarn.service", {"components": [{"name": "more"}]}, "components"),
        ("yarn.service", {"artifact": "image"}, "artifact is no object"),
        ("yarn.worker", {"resource": {"additional": []}}, "additional is no object"),
    ],
)  # fmt: skip
def test_nothing_that_horae_counts_is_a_jobs_to_say(name: str, asked: object, word: str) -> None:
    """Each of these reached YARN: GPUs, memory and a queue that no decision knew of."""
    with pytest.raises(Never, match=re.escape(word)):
        shapes.check("job", replace(SPEC, extra={name: json.dumps(asked)}))


@pytest.mark.parametrize(
    ("job", "extra"),
    [
        ("a b", {}),
        ("a:b", {}),
        ("../up", {}),
        ("job", {"yarn.service": "no json"}),
        ("job", {"yarn.worker": "[]"}),
        ("job", {"yarn.worker": '{"a":' * 100_000}),
    ],
)
def test_what_yarn_can_never_run_is_refused(job: str, extra: dict[str, str]) -> None:
    with pytest.raises(Never):
        shapes.check(job, replace(SPEC, extra=extra))


def test_the_script_hands_words_over_as_they_are(tmp_path: Path) -> None:
    """The script's own python is one that prints what it was given."""
    teller = tmp_path / "python"
    teller.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho "A=$A"\necho "PYTHONPATH=$PYTHONPATH"\n')
    teller.chmod(0o755)
    options = replace(OPTIONS, python=str(teller))
    spec = replace(SPEC, env={"A": "a 'b' $c"}, cwd=str(tmp_path), grace_s=7.5)
    script = tmp_path / "launch.sh"
    script.write_text(shapes.launch_script("train", spec, options, "/jobs/train"))
    env = {**os.environ, "CONTAINER_ID": "container_1", "PYTHONPATH": "/other"}
    done = subprocess.run(["bash", str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[words.index("--") + 1 : words.index("--") + 5] == list(SPEC.command)
    assert words[words.index("--member") + 1] == "container_1"
    assert words[words.index("--gate") + 1] == "webhdfs://nn:9870/jobs/train"
    assert words[words.index("--grace") + 1] == "7.5"
    assert "A=a 'b' $c" in words
    assert f"PYTHONPATH={tmp_path}/{shapes.SDK}:/other" in words


def test_workers_know_all_namenodes() -> None:
    options = replace(OPTIONS, webhdfs=("https://nn1:9871/", "https://nn2:9871"))
    script = shapes.launch_script("train", SPEC, options, "/jobs/train")
    assert "--gate swebhdfs://nn1:9871,nn2:9871/jobs/train " in script
    assert "export HORAE_WEBHDFS=https://nn1:9871,https://nn2:9871\n" in script


def test_the_supervisor_is_one_file_that_python_runs_and_imports(tmp_path: Path) -> None:
    name, data = shapes.sdk()
    assert (name, data) == shapes.sdk()
    assert re.fullmatch(r"horae-[0-9a-f]{12}\.pyz", name)
    carried = tmp_path / name
    carried.write_bytes(data)
    env = {"PYTHONPATH": str(carried), "PATH": os.environ["PATH"]}
    helped = subprocess.run([sys.executable, str(carried), "--help"], capture_output=True, text=True, check=True)
    assert "--gate" in helped.stdout
    code = "import horae.elastic; print(horae.elastic.__file__)"
    found = subprocess.run([sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True, check=True)
    assert str(carried) in found.stdout


def test_every_process_makes_the_same_file_of_it() -> None:
    """Workers on their way have it by its name, length and time: made anew it would be another one under that name."""
    code = "from hashlib import sha256; from yarn_bridge.jobs.shapes import sdk; print(sha256(sdk()[1]).hexdigest())"
    made = {
        subprocess.run(
            [sys.executable, "-c", f"import {first}; {code}"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for first, seed in (("os", "0"), ("numpy", "1"), ("horae.cli", "2"))
    }
    assert len(made) == 1


@pytest.mark.parametrize("known", [True, False], ids=["this Python", "another Python"])
def test_what_another_python_compiled_is_passed_over(tmp_path: Path, known: bool) -> None:
    carried, text = tmp_path / "sdk.pyz", "horae/elastic/protocol.py"
    with zipfile.ZipFile(io.BytesIO(shapes.sdk()[1])) as made, zipfile.ZipFile(carried, "w") as changed:
        for entry in made.infolist():
            data = made.read(entry)
            if entry.filename == text:
                data += b"\nFROM_SOURCE = True\n"
            elif entry.filename.endswith(".pyc") and not known:
                data = b"\x00\x00\r\n" + data[4:]
            changed.writestr(entry, data)
    code = "import horae.elastic.protocol as it; print(hasattr(it, 'FROM_SOURCE'))"
    env = {"PYTHONPATH": str(carried), "PATH": os.environ["PATH"]}
    found = subprocess.run([sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True, check=True)
    assert found.stdout == f"{not known}\n"
