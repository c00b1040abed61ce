"""The offline bundle: made here with a network, installed in a namespace that has none, and it works there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.real, pytest.mark.soak]


def run(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_a_bundle_is_installed_without_a_network(tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = str(ROOT / "slurm_plugin/site/bundle.sh")
    made = run(script, "-p", version, "-o", str(tmp_path / "dist"), PYTHON=sys.executable)
    assert made.returncode == 0, made.stderr
    archive = Path(made.stdout.strip())
    subprocess.run(["tar", "-C", str(tmp_path), "-xzf", str(archive)], check=True)
    bundle = tmp_path / archive.name.removesuffix(".tar.gz")
    alone = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--net"]
    done = run(*alone, str(bundle / "install.sh"), str(tmp_path / "opt"), PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    horae = str(tmp_path / "opt/bin/horae")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/slurm.conf").write_text("ClusterName=c\nPartitionName=gpu Nodes=n1\n")
    shown = run(*alone, horae, "install", "slurm", "--set", "partitions=gpu", "--set", f"etc={tmp_path}/etc")
    assert shown.returncode == 0, shown.stderr
    assert "nothing was written" in shown.stdout
    assert run(*alone, horae, "policies", "--json").returncode == 0

    wheel = next((bundle / "wheels").glob("horae-*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1])
    damaged = run(*alone, str(bundle / "install.sh"), str(tmp_path / "opt"), PYTHON=sys.executable)
    assert damaged.returncode == 3
    assert "damaged" in damaged.stderr
