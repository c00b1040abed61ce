"""One command -> one job: each option has its effect, or is refused with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from horae.job_form import JobForm
from policy.model import BadInput, Shape
from yarn_bridge.submarine import Translation, markdown, translate
from yarn_bridge.submarine.table import BY_NAME, OPTIONS, Fate

WORKERS = ("--worker_resources", "memory=4G,vcores=2,gpu=1", "--worker_launch_cmd", "python t.py")
SIZED = ("--num_workers", "4", "--input_path", "hdfs:///in")
BASE = ("--name", "j", *WORKERS, *SIZED)
PS = ("--num_ps", "2", "--ps_resources", "memory=2G,vcores=1", "--ps_launch_cmd", "python ps.py")
MXNET = ("--framework", "mxnet", *PS, "--num_schedulers", "1", "--scheduler_resources", "memory=1G,vcores=1")
KERBEROS = ("--keytab", "hdfs:///user/ann/k", "--principal", "ann/gw@LAB")
ELASTIC = ("--max_workers", "8")


def said(*words: str) -> Translation:
    return translate(words, "ann")


def job(*words: str) -> dict[str, Any]:
    return said(*BASE, *words).job


def part(made: dict[str, Any], name: str) -> Any:
    return json.loads(made["extra"][f"yarn.{name}"])


def servers(made: dict[str, Any]) -> Any:
    return json.loads(made["env"]["HORAE_SERVERS"])


def refused(*words: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        translate(words, "ann")
    assert caught.value.remedy, "what to do is always said"
    return caught.value


#: option -> (command without it, the option as given): the two differ in what is handed in or done.
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "framework": (BASE, ("--framework", "pytorch")),
    "name": (BASE[2:], ("--name", "k")),
    "input_path": ((*BASE[:4], "--worker_launch_cmd", "t %input_path%"), ("--input_path", "hdfs:///other")),
    "checkpoint_path": ((*BASE, *ELASTIC), ("--checkpoint_path", "hdfs:///ck")),
    "saved_model_path": ((*BASE[:4], "--worker_launch_cmd", "t %saved_model_path%"), ("--saved_model_path", "/m")),
    "num_workers": ((*BASE[:6], "--input_path", "x"), ("--num_workers", "3")),
    "worker_resources": (("--name", "j", *WORKERS[2:], *SIZED), WORKERS[:2]),
    "worker_launch_cmd": (("--name", "j", *WORKERS[:2], *SIZED), WORKERS[2:]),
    "worker_docker_image": (BASE, ("--worker_docker_image", "w")),
    "num_ps": ((*BASE, *PS[2:]), PS[:2]),
    "ps_resources": ((*BASE, *PS[:2], *PS[4:]), PS[2:4]),
    "ps_launch_cmd": ((*BASE, *PS[:4]), PS[4:]),
    "ps_docker_image": ((*BASE, *PS), ("--ps_docker_image", "p", "--docker_image", "p")),
    "num_schedulers": ((*BASE, *MXNET[:8], *MXNET[10:], "--scheduler_launch_cmd", "s"), MXNET[8:10]),
    "scheduler_resources": ((*BASE, *MXNET[:10], "--scheduler_launch_cmd", "s"), MXNET[10:]),
    "scheduler_launch_cmd": ((*BASE, *MXNET), ("--scheduler_launch_cmd", "s")),
    "scheduler_docker_image": (
        (*BASE, *MXNET, "--scheduler_launch_cmd", "s"),
        ("--scheduler_docker_image", "i", "--worker_docker_image", "i"),
    ),
    "docker_image": (BASE, ("--docker_image", "i")),
    "queue": (BASE, ("--queue", "gpu")),
    "env": (BASE, ("--env", "A=b")),
    "localization": (BASE, ("--localization", "hdfs:///a:.")),
    "conf": (BASE, ("--conf", "tony.yarn.queue=gpu")),
    "tensorboard": (BASE, ("--tensorboard",)),
    "wait_job_finish": (BASE, ("--wait_job_finish",)),
    "verbose": (BASE, ("--verbose",)),
    "keytab": ((*BASE, *KERBEROS[2:]), KERBEROS[:2]),
    "principal": ((*BASE, *KERBEROS[:2]), KERBEROS[2:]),
    "help": (BASE, ("--help",)),
    "min_workers": (BASE, ("--min_workers", "2")),
    "max_workers": (BASE, ("--max_workers", "8")),
    "split_workers": ((*BASE[:3], "memory=4G,vcores=4,gpu=2", *BASE[4:]), ("--split_workers",)),
    "self_checkpointing": ((*BASE, *ELASTIC), ("--self_checkpointing",)),
    "tenant": (BASE, ("--tenant", "vision")),
    "app": (BASE, ("--app", "sweep")),
    "gpu_type": (BASE, ("--gpu_type", "v100")),
    "grace": (BASE, ("--grace", "120")),
    "retries": (BASE, ("--retries", "2")),
    "dry_run": (BASE, ("--dry_run",)),
    "json": (BASE, ("--json",)),
    "socket": (BASE, ("--socket", "/s")),
}  # fmt: skip
#: A file, a condition of others, and the one that has nothing to act on: tested below and in test_yamlfile.
IDLE = {"tensorboard_resources", "tensorboard_docker_image", "quicklink"}
ELSEWHERE = {"f", "distribute_keytab", "insecure", "strict", "without", *IDLE}


def effect(words: tuple[str, ...]) -> Any:
    try:
        found = translate(words, "ann")
    except BadInput as error:
        return ("refused", str(error))
    return found.job, found.wait, found.verbose, found.dry_run, found.json, found.help, found.socket


def test_every_option_has_a_case() -> None:
    assert set(CASES) | ELSEWHERE == set(BY_NAME)


@pytest.mark.parametrize("name", CASES)
def test_no_option_is_dropped(name: str) -> None:
    without, words = CASES[name]
    before, after = effect(without), effect((*without, *words))
    assert before != after
    assert after[0] != "refused", after


@pytest.mark.parametrize("name", [name for name in CASES if name != "help"])
def test_the_account_names_every_option_that_was_given(name: str) -> None:
    without, words = CASES[name]
    try:
        found = translate((*without, *words), "ann")
    except BadInput:
        return
    assert f"--{name}" in [line.option for line in found.lines]
    assert all(line.text for line in found.lines)


def test_the_job_is_one_that_the_api_takes() -> None:
    for words in ((), ELASTIC, PS, KERBEROS, ("--docker_image", "i", "--localization", "hdfs:///a:/b")):
        assert JobForm.model_validate(job(*words)).name == "j"


def test_a_plain_command_is_a_rigid_job_as_it_was() -> None:
    made = job()
    assert made == {
        "name": "j",
        "command": ["bash", "-c", "python t.py"],
        "gpus": 4,
        "elastic": False,
        "env": {"HORAE_FRAMEWORK": "tensorflow"},
        "memory_per_gpu": 4 << 30,
        "cpus_per_gpu": 2.0,
        "retries": 0,
        "extra": {},
    }


def test_workers_become_elastic_by_two_words() -> None:
    made = job("--min_workers", "2", "--max_workers", "16")
    assert made["gpus"] == {"requested": 4, "min": 2, "max": 16}
    assert (made["elastic"], made["retries"]) == (True, 3)
    assert made["checkpoint"] == "hdfs:///user/ann/submarine/jobs/j/staging/checkpoint_path"
    assert job("--max_workers", "8")["gpus"]["min"] == 1
    assert job("--min_workers", "2")["gpus"] == {"requested": 4, "min": 2, "max": 4}
    assert "outside 5 to 4" in refused(*BASE, "--min_workers", "5").message
    assert "outside 1 to 3" in refused(*BASE, "--max_workers", "3").message


def test_placeholders_are_replaced_in_every_role() -> None:
    words = ["--name", "j", "--num_workers", "2", *WORKERS[:2], *PS[:4], "--input_path", "hdfs:///in"]
    words += ["--worker_launch_cmd", "t %input_path% %checkpoint_path% %saved_model_path%"]
    words += ["--ps_launch_cmd", "p %checkpoint_path%", "--checkpoint_path", "hdfs:///ck"]
    made = said(*words).job
    assert made["command"][2] == "t hdfs:///in hdfs:///ck hdfs:///ck"
    assert servers(made)[0]["command"] == ["bash", "-c", "p hdfs:///ck"]
    error = refused("--name", "j", *WORKERS[:2], "--worker_launch_cmd", "t %input_path%")
    assert (error.field, error.remedy) == ("--worker_launch_cmd", "add --input_path")


def test_parameter_servers_stand_beside_the_workers_of_a_rigid_gang() -> None:
    made = job(*PS, "--env", "A=b")
    assert (made["gpus"], made["elastic"]) == (4, False)
    assert servers(made) == [{"role": "ps", "count": 2, "command": ["bash", "-c", "python ps.py"], "env": {}}]
    assert (made["memory_per_gpu"], made["cpus_per_gpu"]) == ((4096 + 2048) << 20, 3.0)
    crowded = said("--name", "j", *WORKERS, "--num_workers", "2", "--input_path", "x", "--num_ps", "5", *PS[2:])
    assert (crowded.job["memory_per_gpu"], crowded.job["cpus_per_gpu"]) == ((4096 + 3 * 2048) << 20, 5.0)
    assert "larger by 6144 MB and 3 vcores" in next(n.text for n in crowded.lines if n.option == "--ps_resources")
    assert "is rigid" in refused(*BASE, *PS, "--max_workers", "8").message
    assert "for one worker" in refused("--name", "j", *WORKERS, *PS).message
    greedy = (*BASE, *PS[:2], "--ps_resources", "memory=1G,vcores=1,gpu=1", *PS[4:])
    assert "GPUs are the workers'" in refused(*greedy, "--strict").message
    assert "a ps sees no GPU" in next(n.text for n in said(*greedy).lines if n.option == "--ps_resources")
    assert "there is no ps" in refused(*BASE, "--strict", "--ps_launch_cmd", "x").message
    assert "is missing" in refused(*BASE, "--num_ps", "1").message
    assert "need each other" in refused(*BASE, "--framework", "mxnet", *PS).message
    too_many = [*MXNET[:9], "2", *MXNET[10:], "--scheduler_launch_cmd", "s"]
    assert "more than one" in refused(*BASE, *too_many).message


def test_a_worker_of_many_gpus_is_split_only_by_the_users_word() -> None:
    words = ["--name", "j", "--worker_resources", "memory=8G,vcores=6,gpu=4", *WORKERS[2:], *SIZED]
    assert "16 processes of one GPU each" in refused(*words, "--strict").remedy
    made = said(*words, "--split_workers", "--max_workers", "6").job
    assert made["gpus"] == {"requested": 16, "min": 4, "max": 24}
    assert (made["memory_per_gpu"], made["cpus_per_gpu"]) == (2 << 30, 1.5)
    assert "of 4 GPUs a process is rigid" in refused(*words, "--max_workers", "6").message


def test_several_gpus_of_one_process_stay_together_on_a_node_of_their_own() -> None:
    found = said("--name", "j", "--worker_resources", "memory=8G,vcores=6,gpu=4", *WORKERS[2:], *SIZED)
    assert (found.job["gpus"], found.job["workers"]) == (16, 4)
    assert (found.job["memory_per_gpu"], found.job["cpus_per_gpu"]) == (2 << 30, 1.5)
    spec = JobForm.model_validate(found.job).spec(owner="ann")
    assert (spec.gpus_a_worker, spec.shape) == (4, Shape(nodes=4, gpus_per_node=4))
    assert "4 GPUs for each process" in next(n.text for n in found.lines if n.option == "--worker_resources")


def test_a_job_without_gpus_is_handed_in_and_said() -> None:
    found = said("--name", "j", "--worker_resources", "memory=4G,vcores=2", *WORKERS[2:], *SIZED, *PS)
    assert (found.job["gpus"], found.job["workers"], found.job["elastic"]) == (0, 4, False)
    assert (found.job["memory_per_gpu"], found.job["cpus_per_gpu"]) == ((4096 + 2048) << 20, 3.0)
    spec = JobForm.model_validate(found.job).spec(owner="ann")
    assert (spec.without_gpus, spec.gpus_a_worker, spec.workers, spec.shape) == (True, 0, 4, None)
    assert "no GPU" in next(n.text for n in found.lines if n.option == "--worker_resources")


def test_other_resources_are_asked_of_yarn() -> None:
    made = said("--name", "j", "--worker_resources", "memory=4G,vcores=2,gpu=1,fpga=2", *WORKERS[2:], *SIZED).job
    assert part(made, "worker") == {"resource": {"additional": {"yarn.io/fpga": {"value": 2, "unit": ""}}}}


def test_tensorboard_runs_beside_the_first_worker_or_alone() -> None:
    made = job("--tensorboard", "--checkpoint_path", "hdfs:///ck", "--max_workers", "8")
    (board,) = servers(made)
    assert (board["role"], board["count"]) == ("tensorboard", 1)
    assert "tensorboard --logdir=hdfs:///ck --bind_all --port=0" in board["command"][2]
    assert made["memory_per_gpu"] == (4096 + 4096) << 20, "as large as Submarine made TensorBoard's own container"
    assert made["gpus"]["max"] == 8, "it makes no job rigid"
    sized = job("--tensorboard", "--tensorboard_resources", "memory=1G,vcores=2", *PS)
    assert [each["role"] for each in servers(sized)] == ["tensorboard", "ps"], "it is beside the first"
    alone = said("--name", "j", "--num_workers", "0", "--tensorboard", "--checkpoint_path", "hdfs:///ck").job
    assert (alone["gpus"], alone["workers"], alone["memory_per_gpu"]) == (0, 1, 4 << 30)
    assert "tensorboard --logdir=hdfs:///ck" in alone["command"][2]


def test_what_is_on_the_users_machine_is_put_into_hdfs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    found = said(
        *BASE, "--localization", "./t.py:.", "--localization", f"{tmp_path}/data:.",
        "--conf", "tony.containers.resources=env.zip#archive,b.py::c.py,,hdfs:///x",
    )  # fmt: skip
    staging = "hdfs:///user/ann/submarine/jobs/j/staging"
    assert [(each.upload, each.source) for each in found.uploads] == [
        ("./t.py", f"{staging}/t.py"),
        (f"{tmp_path}/data", f"{staging}/data.zip"),
        ("env.zip", f"{staging}/env.zip"),
        ("b.py", f"{staging}/b.py"),
    ]
    assert [(each["dest_file"], each["type"]) for each in part(found.job, "service")["configuration"]["files"]] == [
        ("t.py", "STATIC"), ("data", "ARCHIVE"), ("env.zip", "ARCHIVE"), ("c.py", "STATIC"), ("x", "STATIC"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--worker_resources", "memory=4G,vcores=2", *WORKERS[2:], "--strict"), "asks for no GPU"),
        (("--worker_resources", "memory=4G,vcores=2,gpu=1,fpga=1", *WORKERS[2:], "--strict"), "Horae shares GPUs only"),
        (("--worker_resources", "memory=4G,vcores=2", *WORKERS[2:], "--max_workers", "2"), "without GPUs is rigid"),
        ((*WORKERS[2:],), "is missing"),
        ((*WORKERS[:2],), "is missing"),
        ((*WORKERS, "--num_workers", "2"), "is missing: Submarine asks for it"),
        ((*WORKERS, "--num_workers", "0"), "nothing to train"),
        ((*WORKERS, "--num_workers", "two"), "not a whole number"),
        ((*WORKERS, "--num_workers", "-1"), "not a whole number"),
        ((*WORKERS, "--framework", "caffe"), "no framework"),
        ((*WORKERS, "--framework", "pytorch", *PS), "is not for pytorch"),
        ((*WORKERS, "--framework", "mxnet", "--tensorboard"), "is not for mxnet"),
        ((*WORKERS, "--num_schedulers", "1"), "is not for tensorflow"),
        ((*WORKERS, "--strict", "--tensorboard"), "tensorboard --logdir"),
        ((*WORKERS, "--strict", "--quicklink", "ui=http://master-0:80"), "no link would hold"),
        ((*WORKERS, "--strict", "--num_workers", "2", "--input_path", ""), "is missing: Submarine asks for it"),
        ((*WORKERS, "--strict", "--num_ps", "0", "--ps_resources", "memory=1G,vcores=1"), "there is no ps to use it"),
        ((*WORKERS, "--tensorboard_resources", "memory=4,vcores=1", "--without", "tensorboard"), "bytes"),
        ((*WORKERS, "--without", "gpus"), "cannot be left out"),
        ((*WORKERS, "--quicklink", "ui=ftp://x"), "is not LABEL="),
        ((*WORKERS, "--keytab", "/k", "--strict"), "go together"),
        ((*WORKERS, "--principal", "a/b@C", "--strict"), "go together"),
        ((*WORKERS, "--keytab", "/k", "--principal", "ann@LAB", "--strict"), "user/host@REALM"),
        ((*WORKERS, "--keytab", "/k", "--principal", "a/b@C", "--distribute_keytab", "--strict"), "copies no key"),
        ((*WORKERS, "--distribute_keytab", "--strict"), "no keytab to distribute"),
        ((*WORKERS, "--self_checkpointing"), "for an elastic job"),
        ((*WORKERS, "--max_workers", "2", "--checkpoint_path", "s3a://b/ck"), "no checkpoints in s3a"),
        ((*WORKERS, "--max_workers", "2", "--checkpoint_path", "ck"), "relative path"),
        ((*WORKERS, "--conf", "tony.containers.resources=hdfs:///a.zip#archive", "--strict"), "are TonY's"),
        ((*WORKERS, "--conf", "tony.worker.memory=2", "--strict"), "--worker_resources"),
        ((*WORKERS, "--strict", "--insecure", "word"), "belongs to no option"),
        ((*WORKERS, "--queue", "a", "--conf", "tony.yarn.queue=b"), "says b"),
        ((*WORKERS, "--localization", "hdfs:///a/x:.", "--localization", "hdfs:///b/x:."), "two files"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words: tuple[str, ...], message: str) -> None:
    assert message in str(refused("--name", "j", *words))


#: what Submarine's own guides write, and what becomes of it
NO_EFFECT = {
    "--tensorboard_docker_image": ("tf:1.13", "there is no --tensorboard"),
    "--keytab": ("/k", "user/host@REALM"),
    "--principal": ("ann@LAB", "user/host@REALM"),
    "--localization": ("nfs://h/x:/x", "put it into HDFS"),
    "--conf": ("tony.worker.instances=3", "--num_workers"),
    "--quicklink": ("ui=http://master-0:80", "no link would hold"),
    "--ps_resources": ("memory=4G,vcores=2", "there is no ps"),
    "--ps_launch_cmd": ("cmd for ps", "there is no ps"),
    "--input_path": ("", "it is empty"),
    "--insecure": ("", ""),
}


def test_what_has_no_effect_is_said_line_by_line_and_the_job_is_the_same() -> None:
    words = [*WORKERS, "--name", "j", "--num_workers", "2", "--num_ps", "0", "--checkpoint_path", "hdfs:///ck"]
    plain = said(*words, "--input_path", "hdfs:///in")
    for option, (value, _) in NO_EFFECT.items():
        flag = option == "--insecure"
        words += [option] if flag else [option, value]
    found = said(*words)
    told = {line.option: line.text for line in found.lines if line.fate is Fate.NOTHING}
    assert set(told) == set(NO_EFFECT)
    assert [option for option, (_, why) in NO_EFFECT.items() if why not in told[option]] == []
    assert found.job == plain.job


def test_what_strict_refuses_goes_by_the_users_word() -> None:
    found = said(*BASE, "--strict", "--tensorboard", "true", "--without", "tensorboard", "--insecure")
    fates = {line.option: line.fate for line in found.lines}
    assert fates["--tensorboard"] is fates["--insecure"] is Fate.NOTHING
    assert found.job == job()


def test_files_and_kerberos_are_parts_of_the_service() -> None:
    made = job(
        *KERBEROS, "--distribute_keytab", "--localization", "hdfs:///a/t.py:.",
        "--conf", "tony.containers.resources=hdfs:///b/c", "--conf", "submarine.runtime.class=x", "--queue", "gpu",
    )  # fmt: skip
    assert part(made, "service") == {
        "configuration": {
            "files": [
                {"type": "STATIC", "src_file": "hdfs:///a/t.py", "dest_file": "t.py"},
                {"type": "STATIC", "src_file": "hdfs:///b/c", "dest_file": "c"},
            ]
        },
        "kerberos_principal": {"principal_name": "ann/gw@LAB", "keytab": "hdfs:///user/ann/k"},
    }
    assert made["extra"]["yarn.queue"] == "gpu"


def test_docker_is_described_as_submarine_described_it() -> None:
    """Artifacts and mounts as Submarine 0.5's own code puts them together; this never ran on a cluster."""
    made = job(
        *PS, *KERBEROS, "--docker_image", "site/tf", "--worker_docker_image", "site/w", "--ps_docker_image", "site/w",
        "--localization", "hdfs:///data/mnist:/opt/mnist",
        "--env", "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS=/etc/group:/etc/group:ro",
    )  # fmt: skip
    service = part(made, "service")
    assert service["artifact"] == {"id": "site/tf", "type": "DOCKER"}
    assert service["configuration"]["env"] == {
        "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS": "/etc/group:/etc/group:ro,mnist:/opt/mnist:rw,"
        "/etc/passwd:/etc/passwd:ro,/etc/krb5.conf:/etc/krb5.conf:ro"
    }
    assert part(made, "worker") == {"artifact": {"id": "site/w", "type": "DOCKER"}}
    other = (*BASE, *PS, "--docker_image", "site/tf", "--ps_docker_image", "site/ps")
    assert "another image than the workers'" in refused(*other, "--strict").message
    assert "another image" in next(line.text for line in said(*other).lines if line.option == "--ps_docker_image")


def test_the_guides_table_has_every_option_once() -> None:
    rows = markdown().splitlines()[2:]
    assert len(rows) == len(OPTIONS)
    assert all(row.count(" | ") == 4 for row in rows)
    assert any(row.startswith("| `--num_ps` (tensorflow, mxnet only) | 0.2 | `roles.ps.replicas` |") for row in rows)
