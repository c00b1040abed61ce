"""The mini-cluster by hand: what conf.sh writes is what the templates ask for, and compose.yaml names what exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from horae.elastic import carry

TABLE = "horae/elastic/supervisor/launchers.json"
ROOT = Path(__file__).parents[2]
HERE = ROOT / "containers" / "slurm"


def rendered(folder: Path, **environment: str) -> Path:
    words = {"PATH": "/usr/bin:/bin", "SITE": str(ROOT / "slurm_plugin/site")}
    words |= {"ELASTIC": str(ROOT / "horae/elastic"), "ON_NODE": str(ROOT / "slurm_plugin/on_node")}
    argv = ["sh", str(HERE / "conf.sh"), str(folder / "etc"), str(folder / "shared")]
    subprocess.run(argv, env={**words, **environment}, check=True)
    return folder / "etc"


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_every_word_of_the_templates_is_filled_in(tmp_path: Path, release: str) -> None:
    etc = rendered(tmp_path, RELEASE=release)
    for path in [etc / "slurm.conf", etc / "job_submit.lua"]:
        assert re.findall(r"\$[A-Z_]+", path.read_text()) == [], path
    conf = (etc / "slurm.conf").read_text()
    keys = {line.partition("=")[0] for line in (HERE / "conf/slurm.conf.in").read_text().splitlines() if "=" in line}
    assert keys <= {line.partition("=")[0] for line in conf.splitlines()}
    lines = [line for line in conf.splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[A-Z]\w+=", line) for line in lines), "a broken line"
    assert (etc / "cgroup.conf").exists() is (release != "22.05")
    carry.carry(str(tmp_path / "carried"))
    by_hand, asked = tmp_path / "shared/horae", tmp_path / "carried"
    library = carry.library(carry.files())
    command = (asked / "bin/horae-exec").read_text()
    assert (by_hand / "bin/horae-exec").read_text() == command.replace(library, "lib")
    for path in (asked / library / "slurm_plugin/on_node").iterdir():
        assert (by_hand / "lib/slurm_plugin/on_node" / path.name).read_text() == path.read_text()
    every, own = (json.loads((each / TABLE).read_text()) for each in (asked / library, by_hand / "lib"))
    assert own == {name: module for name, module in every.items() if module.startswith("slurm_plugin.")}
    config = yaml.safe_load((etc / "horae/config.yaml").read_text())
    assert config["cluster"]["options"]["partitions"] == ["dl"]


def test_compose_mounts_and_roles_exist() -> None:
    compose = yaml.safe_load((HERE / "compose.yaml").read_text())
    roles = set(re.findall(r"^  (\w+)\)$", (HERE / "entry.sh").read_text(), re.MULTILINE))
    for name, service in compose["services"].items():
        assert "container_name" not in service, "two clusters side by side"
        if "command" in service:
            assert set(service["command"]) <= roles, name
        if name not in {"db", "conf"}:
            assert service["hostname"] == name
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source in compose["volumes"] or source == "../../dist" or (HERE / source).exists(), mount
    assert {f"n{index}" for index in range(1, 5)} <= set(compose["services"])
