"""The mini-cluster of containers: what is kept in containers/hadoop is what the code says, and names what exists."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml

from horae.lab import LabRequest, parse_gpus
from horae.lab.docked import DockedLab
from horae.machine_gpus import nodes_from
from tests.real.hadoop import FOLDERS
from yarn_bridge.lab import fetch, roles, settings
from yarn_bridge.lab.asked import Daemons
from yarn_bridge.lab.jars import local_framework
from yarn_bridge.lab.private import PrivateHadoop

HERE = Path(__file__).parents[2] / "containers" / "hadoop"
REMEDY = "python -m yarn_bridge.lab.roles --write"


def test_the_kept_compose_file_is_the_made_one() -> None:
    assert (HERE / "compose.yaml").read_text() == roles.compose(roles.KEPT), REMEDY


def test_the_kept_configuration_is_the_made_one(tmp_path: Path) -> None:
    settings.write_conf(tmp_path, settings.DOCKED_SITE, settings.DOCKED_DAEMON)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(HERE / "conf"): path.read_text() for path in (HERE / "conf").rglob("*") if path.is_file()}
    assert made == kept, REMEDY


def test_compose_names_what_exists() -> None:
    compose = yaml.safe_load((HERE / "compose.yaml").read_text())
    known = re.search(r"no such role: \$role \(([\w ]+)\)", (HERE / "entry.sh").read_text())
    assert known is not None
    for name, service in compose["services"].items():
        assert service["hostname"] == name
        assert service["command"][0] in known[1].split()
        assert "container_name" not in service, "two clusters side by side"
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert source.startswith("${HOME}/") or (HERE / source).exists(), mount
            assert mount.endswith(":ro")
    assert [name for name, service in compose["services"].items() if "build" in service] == ["nn"]


def test_every_requested_node_is_a_container_with_its_gpus() -> None:
    made = {role.name: role for role in roles.roles(LabRequest("lab", nodes=3, gpus=parse_gpus("v100:4,k80:1")))}
    found = {name: role.env for name, role in made.items() if "GPU_KIND" in role.env}
    nodes = {name: (env["GPU_KIND"], env["FAKE_GPUS"]) for name, env in found.items()}
    assert nodes == {"n1": ("v100", "4"), "n2": ("v100", "4"), "n3": ("k80", "1")}
    assert {"nn", "zk", "rm", "dn1", "dn2", "init", "gateway"} == set(made) - set(nodes)


def test_what_differs_from_node_to_node_comes_from_its_environment(tmp_path: Path) -> None:
    settings.write_conf(tmp_path, settings.DOCKED_SITE, settings.DOCKED_DAEMON, {"yarn.extra": "of the caller"})
    site = {
        found.findtext("name"): found.findtext("value")
        for found in ET.parse(tmp_path / "yarn-site.xml").iter("property")
    }
    attributes = site["yarn.nodemanager.node-attributes.provider.configured-node-attributes"]
    assert attributes == "host,STRING,${env.HOSTNAME}:gpukind,STRING,${env.GPU_KIND:-none}"
    assert site["yarn.resourcemanager.webapp.address"] == "rm:8088"
    assert site["yarn.extra"] == "of the caller"


def test_what_a_lab_keeps_in_files_is_in_its_own_folder(tmp_path: Path) -> None:
    """Node labels were in /tmp: those of another lab were there at its start, and they stayed when it was down."""
    site = settings.Site("1", "1", "1", "1", data="/data/of/lab")
    settings.write_conf(tmp_path, site, settings.Daemon("n1", "1", "v100", "/etc/n1"))
    found = {
        each.findtext("name"): each.findtext("value") for each in ET.parse(tmp_path / "yarn-site.xml").iter("property")
    }
    stores = [
        value or "" for key, value in found.items() if re.search(r"fs-store\.root-dir|state-store\.uri", key or "")
    ]
    assert len(stores) == 3
    assert all(value.startswith("file:///data/of/lab/") for value in stores), stores


def test_settings_of_a_private_lab_may_change_between_two_starts_of_a_daemon(tmp_path: Path) -> None:
    facts = {"net": "127.9.9", "nodes": [["n1", "v100", 2]], "yarn": {"yarn.first": "1", "yarn.second": "1"}}
    (tmp_path / "lab.json").write_text(json.dumps(facts))
    lab = PrivateHadoop(tmp_path, tmp_path)
    for _ in range(2):
        lab.settle({"yarn.second": "2"})
    for daemon in ("master", "n1"):
        text = (tmp_path / "etc" / daemon / "yarn-site.xml").read_text()
        assert text.count("<name>yarn.first</name><value>1</value>") == 1
        assert text.count("<name>yarn.second</name><value>2</value>") == text.count("yarn.second") == 1


@pytest.mark.parametrize(("kind", "count"), [("v100", 4), ("k80", 1)])
def test_the_fake_nvidia_smi_says_what_it_was_told(tmp_path: Path, kind: str, count: int) -> None:
    settings.write_conf(tmp_path, settings.DOCKED_SITE, settings.DOCKED_DAEMON)
    environment = {"PATH": "/usr/bin:/bin", "GPU_KIND": kind, "FAKE_GPUS": str(count)}
    done = subprocess.run([tmp_path / "nvidia-smi", "-q", "-x"], env=environment, capture_output=True, check=True)
    gpus = list(ET.fromstring(done.stdout).iter("gpu"))
    assert [gpu.findtext("product_name") for gpu in gpus] == [kind] * count
    assert [gpu.findtext("minor_number") for gpu in gpus] == [str(index) for index in range(count)]


def test_real_gpus_go_to_nodes_of_their_type_as_long_as_there_are_enough() -> None:
    there = nodes_from("0, NVIDIA H100 PCIe\n1, NVIDIA H100 PCIe\n2, NVIDIA H100 PCIe\n3, Tesla T4\n", "host")
    asked = [
        ("n1", "h100", 2),
        ("n2", "h100", 2),
        ("n3", "h100", 1),
        ("n4", "v100", 1),
        ("n5", "t4", 1),
        ("n6", "t4", 1),
    ]
    assert roles.real_gpus(asked, there) == {"n1": (0, 1), "n3": (2,), "n5": (3,)}
    assert roles.real_gpus(asked, ()) == {}


def test_without_a_told_number_the_real_nvidia_smi_answers(tmp_path: Path) -> None:
    settings.write_conf(tmp_path, settings.DOCKED_SITE, settings.DOCKED_DAEMON)
    stand_in = tmp_path / "real"
    stand_in.write_text("#!/bin/sh\necho real $*\n")
    stand_in.chmod(0o755)
    fake = tmp_path / "nvidia-smi"
    fake.write_text(fake.read_text().replace("/usr/bin/nvidia-smi", str(stand_in)))
    done = subprocess.run([fake, "-q", "-x"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert done.stdout == "real -q -x\n"


def test_the_framework_names_the_jars_where_nodes_see_them(tmp_path: Path) -> None:
    (tmp_path / "a-1.jar").write_bytes(b"")
    with tarfile.open(fileobj=io.BytesIO(local_framework(tmp_path, Path(roles.JARS)))) as tar:
        member = tar.extractfile("classpath.jar")
        assert member is not None
        with zipfile.ZipFile(io.BytesIO(member.read())) as jar:
            manifest = jar.read("META-INF/MANIFEST.MF").decode()
    assert "Class-Path: file:///opt/hadoop/jars/a-1.jar" in manifest


def test_the_gateway_gets_what_horae_needs_for_yarn_and_no_more() -> None:
    declared = [
        "numpy>=1.26",
        "requests>=2.31; extra == 'yarn'",
        'requests>=2.31; extra == "slurm"',
        "ruff; extra == 'dev'",
    ]
    assert fetch.requirements(declared) == ["numpy>=1.26", "requests>=2.31"]


def test_labs_of_two_kinds_may_have_one_name(tmp_path: Path) -> None:
    from slurm_plugin.lab.containers import ContainerSlurm
    from yarn_bridge.lab.containers import ContainerHadoop

    labs: list[DockedLab] = [
        ContainerSlurm("lab", tmp_path, lambda text: None),
        ContainerHadoop("lab", tmp_path, lambda text: None, tmp_path),
    ]
    assert len({lab.mark for lab in labs}) == 2


@pytest.mark.parametrize(
    "words",
    [
        "/bin/bash\0-c\0/bin/bash ExecScript.sh 1>{lab}/data/n1/logs/a/c/stdout 2>{lab}/data/n1/logs/a/c/stderr \0",
        "/bin/bash\0-c\0/usr/bin/java -Xmx9m App --placement_spec aX/b 1>{lab}/data/n1/logs/a/c/AppMaster.stdout\0",
        "/usr/bin/java\0--add-opens=java.base/java.lang=ALL-UNNAMED\0-Djdk.net.hosts.file={lab}/hosts\0",
        "/usr/bin/python3\0{lab}/data/n1/local/c/horae.pyz\0--member\0c\0",
        "/usr/bin/sleep\0LOCAL_DIRS={lab}/data/n1/local/a,{lab}/data/n2/local/a\0",
    ],
)
def test_what_runs_in_a_private_lab_is_of_its_folder_and_no_other(words: str) -> None:
    """A living lab's container that is taken for one of a lab that is gone is killed by the next test run beside it."""
    lab = "/tmp/pytest-of-somebody/pytest-5/hadoop342-0"
    found = FOLDERS.search(words.format(lab=lab).encode())
    assert found is not None
    assert found[1].decode() == lab


def test_a_private_lab_whose_hdfs_is_slow_is_prepared_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is kept from the processor answers late, or refuses: that is no reason to give up."""
    done, faults = set[tuple[str, str]](), {"MKDIRS": [0, 503], "SETPERMISSION": [0], "SETOWNER": [403], "CREATE": [0]}

    def ask(what: str, operation: str) -> str:
        status = faults[operation].pop() if faults[operation] else 200
        if status == 0:
            raise TimeoutError(operation)
        if status != 200:
            raise HTTPError(what, status, operation, Message(), None)
        done.add((what, operation))
        return ""

    (tmp_path / "lab.json").write_text('{"net": "127.1.1"}')
    monkeypatch.setattr(Daemons, "hdfs", lambda _self, _method, path, operation, **_: ask(path, operation))
    monkeypatch.setattr(Daemons, "put", lambda _self, path, _data: ask(path, "CREATE") == "")
    PrivateHadoop(tmp_path, tmp_path)._prepare(b"")
    assert not any(faults.values())
    assert {(path, operation) for path, _ in settings.FOLDERS for operation in ("MKDIRS", "SETPERMISSION")} <= done
    assert {("/user/horae", "SETOWNER"), (settings.FRAMEWORK, "CREATE")} <= done


def test_a_lab_under_kerberos_says_so_to_every_daemon_and_to_who_asks(tmp_path: Path) -> None:
    site = settings.Site("1", "1", "1", "1", data="/data", standby="2", kdc="/kdc", owners=("alice",))
    for mine in (0, 1):
        settings.write_conf(tmp_path / str(mine), site, settings.Daemon(mine=mine), {"dfs.replication": "2"})
    core, hdfs, yarn = (
        [{each.findtext("name"): each.findtext("value") for each in ET.parse(tmp_path / mine / file).iter("property")}
         for mine in "01"]
        for file in ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
    )  # fmt: skip
    assert core[0] == core[1]
    assert core[0]["hadoop.security.authentication"] == core[0]["hadoop.http.authentication.type"] == "kerberos"
    assert core[0]["fs.defaultFS"] == "hdfs://lab"
    assert [each["dfs.ha.namenode.id"] for each in hdfs] == ["nn1", "nn2"]
    assert "dfs.namenode.rpc-address" not in hdfs[0]
    assert hdfs[0]["dfs.replication"] == "2"
    assert "dfs.replication" not in yarn[0]
    assert [each["yarn.resourcemanager.ha.id"] for each in yarn] == ["rm1", "rm2"]
    assert yarn[0]["yarn.resourcemanager.keytab"] == "/kdc/rm.keytab"


def test_of_a_lab_that_is_down_only_its_logs_are_left(tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text(json.dumps({"net": "127.9.9", "nodes": [["n1", "v100", 2]], "yarn": {}}))
    lab = PrivateHadoop(tmp_path, tmp_path)
    lab.settle({})
    for name in ("data/tmp", "data/n1/logs/application_1", "kdc", "run", "log"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "kdc/http.keytab").touch()
    (tmp_path / "owner").write_text("1")
    lab.down()
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"log", "log/containers-n1", "log/containers-n1/application_1"}


def test_every_real_test_on_a_yarn_closes_the_schedulers_books() -> None:
    """What is pending for nobody is looked for at its end: `YarnHarness.end`, `secured`, or `books` by itself."""
    tests = Path(__file__).parents[1]
    brings_up = re.compile(r"\b(PrivateHadoop|ContainerHadoop|YarnHarness|secured|cluster_of)\(")
    closes = re.compile(r"\.end\(\)|\bbooks\.(check|told)\(|\bwith secured\(")
    files = [*(tests / "real").glob("test_*.py"), *(tests / "contract").glob("test_yarn*.py")]
    found = {path.name: path.read_text() for path in files}
    on_yarn = {name for name, text in found.items() if brings_up.search(text)}
    assert len(on_yarn) > 25
    assert {name for name in on_yarn if not closes.search(found[name])} == {"test_hadoop_files.py"}, "no application"
