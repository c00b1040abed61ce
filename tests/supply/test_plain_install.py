"""A plain installation, without extras: what is there works, and what is missing is told with its command.

The environment is made here without a network: the wheel of this checkout, and of all packages installed here only
those that the lock says a plain installation carries.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from supply.locks import HERE, PYTHONS, plain, read, wanted
from supply.sbom import closure, needed

TREE = HERE.parent
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its interpreter."""
    folder = tmp_path_factory.mktemp("plain")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=TREE, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    with zipfile.ZipFile(next(folder.glob("horae-*.whl"))) as wheel:
        wheel.extractall(packages)
    for name in carried():
        linked(name, packages)
    return folder / "venv/bin/python"


def carried() -> set[str]:
    """What a plain installation consists of, beside Horae itself."""
    pins = [pin for pin in read(HERE / "slurm.txt") if pin.fits(PYTHON if PYTHON in PYTHONS else PYTHONS[-1])]
    return closure(set(wanted(())), needed(pins)) & {pin.name for pin in pins}


def linked(name: str, packages: Path) -> None:
    found = distribution(name)
    for top in {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        source, target = Path(str(found.locate_file(top))), packages / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def horae(bare: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from horae.cli import main; sys.exit(main())"
    environment = {"PATH": os.environ["PATH"], "HOME": str(bare.parent), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [str(bare), "-I", "-c", program, *words],
        cwd=bare.parent, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("policies",),
        ("lab", "list"),
        ("config", "init"),
        ("decide", str(TREE / "docs/policies/example.yaml"), "--policy", "max-min"),
        ("decide", str(TREE / "docs/policies/example.yaml"), "--policy", "oef-cooperative"),
        ("install", "--help"),
        ("serve", "--help"),
        ("top", "--help"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_needs_no_extra_works(bare: Path, words: tuple[str, ...]) -> None:
    done = horae(bare, *words)
    assert done.returncode == 0, done.stderr


def test_the_arbiter_and_the_local_cluster_need_no_extra(bare: Path) -> None:
    program = "import horae.api.service, horae.local, horae.elastic, profiler.estimates.profiles, horae.demo.cluster"
    done = subprocess.run([str(bare), "-I", "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def cluster(folder: Path, adapter: str) -> str:
    path = folder / f"{adapter}.yaml"
    options = "{resource_manager: 'http://127.0.0.1:1', webhdfs: 'http://127.0.0.1:1'}" if adapter == "yarn" else "{}"
    path.write_text(f"cluster: {{adapter: {adapter}, options: {options}}}\nstate_dir: {folder}/state\n")
    return str(path)


def test_what_is_missing_is_named_with_the_command_that_installs_it(bare: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log.zst"
    log.write_bytes(b"\x28\xb5\x2f\xfd\x04\x58")
    asked = {
        ("install", "yarn", "--set", "rm=http://127.0.0.1:1"): "horae[yarn]",
        ("install", "slurm", "--set", "partitions=gpu"): "horae[slurm]",
        ("lab", "up", "slurm", "--engine", "docker"): "horae[lab]",
        ("serve", cluster(tmp_path, "slurm")): "horae[slurm]",
        ("serve", cluster(tmp_path, "yarn")): "horae[yarn]",
        ("profile", "yarn:application_1_1", "--config", cluster(tmp_path, "yarn")): "horae[yarn]",
        ("profile", str(log)): "horae[zstd]",
    }
    for words, extra in asked.items():
        done = horae(bare, *words)
        assert f"pip install '{extra}'" in done.stderr, (words, done.stderr)
        assert "bug" not in done.stderr
        assert done.returncode not in (0, 70), (words, done.stderr)


def test_a_plain_installation_carries_what_it_uses_and_no_more() -> None:
    large = {"scipy", "textual", "zstandard", "matplotlib", "scikit-learn", "requests", "httpx", "docker", "paramiko"}
    assert not carried() & large
    assert not {"hdfs", "docopt"} & {plain(pin.name) for pin in read(HERE / "lock.txt")}
