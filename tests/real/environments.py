"""Pythons with training frameworks, for tests marked `real`.

`python_with(name)` gives an interpreter, made on first use where real tests must run (CI=true or HORAE_REAL=1) or
already there; else the test is skipped with what is missing. They are kept in `.cache/real`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "real"
REAL = os.environ.get("CI") == "true" or os.environ.get("HORAE_REAL") == "1"

#: Debian's own Python, which alone sees Debian's torch (1.13, gloo).
SYSTEM = "/usr/bin/python3"

#: Without their dependencies: torch is Debian's, and PyPI's is gigabytes of CUDA.
TORCH_EXTRAS = (
    *("transformers==4.36.2", "tokenizers==0.15.2", "huggingface-hub==0.20.3", "safetensors==0.4.5"),
    *("accelerate==0.25.0", "lightning==2.1.4", "lightning-utilities==0.11.9", "torchmetrics==1.2.1"),
    *("regex", "filelock", "requests", "urllib3", "idna", "certifi", "charset-normalizer", "tqdm", "packaging"),
    *("pyyaml", "psutil", "fsspec", "typing-extensions", "setuptools<81"),
)
JAX = ("jax==0.10.2", "keras==3.15.1", "h5py")


def python_with(name: str) -> str:
    """`torch`: PyTorch alone; `torch-extras`: with transformers and lightning; `jax`: JAX, and Keras on it."""
    if name == "jax":
        return _environment("jax", JAX, system=False)
    if subprocess.run([SYSTEM, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"{SYSTEM} has no torch (apt-get install python3-torch)")
    return SYSTEM if name == "torch" else _environment("torch-extras", TORCH_EXTRAS, system=True)


def _environment(name: str, packages: tuple[str, ...], *, system: bool) -> str:
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        if not REAL:
            pytest.skip(f"{folder} is not there (HORAE_REAL=1 makes it)")
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "ready").exists():
                _build(folder, packages, system=system)
    return str(python)


def _build(folder: Path, packages: tuple[str, ...], *, system: bool) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None, "uv is needed to make environments for real tests"
    base = [uv, "venv", "--quiet", "--clear", "--python", SYSTEM if system else sys.executable]
    subprocess.run([*base, *(["--system-site-packages"] if system else []), str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    subprocess.run([*install, *(["--no-deps"] if system else []), *packages], check=True)
    (folder / "ready").touch()
