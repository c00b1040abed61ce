"""Real training frameworks for the tests, each in an environment of its own in `.cache/frameworks` of the checkout.

    with_torch()       Debian 12's python3-torch 1.13 (DDP over gloo): the installed one, else unpacked, not installed
    with_tensorflow()  tensorflow-cpu 2.15 (Keras 2, tf.estimator) in a virtual environment
    with_torch_extras()  Debian's torch with transformers and lightning
    with_jax()         JAX, and Keras 3 on it

Made once (minutes, about 1.5 GB), then reused; a lock lets tests that run side by side wait for one of them. An
environment is complete when its marker file names this recipe; a half-made one is thrown away. Downloads are tried
again with growing pauses. Nothing outside the folder is touched and nothing needs root.

`Unavailable` says why there is none (no network, another system); tests turn it into a skip, which is a failure
under CI.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("HORAE_TEST_CACHE", ROOT / ".cache")) / "frameworks"
TRIES = 4


class Unavailable(Exception):
    """This machine cannot have the framework; the text is for people."""


@dataclass(frozen=True)
class Framework:
    """An interpreter that can import a framework, and the environment variables it needs."""

    name: str
    python: str
    env: Mapping[str, str]

    def variables(self) -> dict[str, str]:
        """What to set for it; nothing of the test run's own interpreter leaks into it."""
        return {"PYTHONPATH": "", "PYTHONHOME": "", "LD_LIBRARY_PATH": "", **self.env, "PYTHONUNBUFFERED": "1"}


def with_torch() -> Framework:
    """Debian's torch: the system's where it is installed, else unpacked from its packages (Debian 12, x86_64)."""
    paced = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if _imports("/usr/bin/python3", "torch"):
        return Framework("torch", "/usr/bin/python3", paced)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("no apt-get here; Debian's torch is unpacked from its packages")
    home = _made("torch-1.13-debian", "1", _make_torch)
    root = home / "root"
    # Some of what it links to comes in /lib, which is a link to /usr/lib only where packages are installed.
    found = [path for folder in ("usr/lib", "lib") for path in (root / folder).rglob("*.so*")]
    libraries = sorted({str(path.parent) for path in found if path.is_file() or path.is_symlink()})
    packages = root / "usr/lib/python3/dist-packages"
    return Framework(
        "torch",
        "/usr/bin/python3",
        {
            "PYTHONPATH": str(packages),
            "LD_LIBRARY_PATH": ":".join(d for d in libraries if str(packages) not in d),
            **paced,
        },
    )


def _imports(python: str, module: str) -> bool:
    if not Path(python).exists():
        return False
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_"))}
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], env=clean, check=False).returncode == 0


def with_tensorflow() -> Framework:
    """tensorflow-cpu 2.15, for Python 3.9 to 3.11."""
    home = _made("tensorflow-2.15", "1", _make_tensorflow)
    return Framework(
        "tensorflow",
        str(home / "venv/bin/python"),
        {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"},
    )


#: Without their dependencies: torch is Debian's, and the index's own is gigabytes of CUDA.
_TORCH_EXTRAS = (
    *("transformers==4.36.2", "tokenizers==0.15.2", "huggingface-hub==0.20.3", "safetensors==0.4.5"),
    *("accelerate==0.25.0", "lightning==2.1.4", "lightning-utilities==0.11.9", "torchmetrics==1.2.1"),
    *("regex", "filelock", "requests", "urllib3", "idna", "certifi", "charset-normalizer", "tqdm", "packaging"),
    *("pyyaml", "psutil", "fsspec", "typing-extensions", "setuptools<81", "numpy<2"),
)


def with_torch_extras() -> Framework:
    """Debian's torch with transformers and lightning of its time."""
    torch = with_torch()

    def make(home: Path) -> None:
        _tried([torch.python, "-m", "venv", "--system-site-packages", str(home / "venv")], home)
        _tried([*_pip(home), "--no-deps", *_TORCH_EXTRAS], home)

    home = _made("torch-extras", "1", make)
    return Framework("torch-extras", str(home / "venv/bin/python"), torch.env)


def with_jax() -> Framework:
    """JAX on CPUs, and Keras 3 on JAX."""

    def make(home: Path) -> None:
        _tried([sys.executable, "-m", "venv", str(home / "venv")], home)
        _tried([*_pip(home), "jax==0.10.2", "keras==3.15.1", "h5py"], home)

    home = _made("jax", "1", make)
    env = {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}
    return Framework("jax", str(home / "venv/bin/python"), env)


def or_skip(make: Callable[[], Framework]) -> Framework:
    """The framework, or a skip of the test that says why there is none."""
    try:
        return make()
    except Unavailable as reason:
        pytest.skip(str(reason))


# --- making one -------------------------------------------------------------------------------------------


def _made(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    home = CACHE / name
    marker = home / "complete"
    with _lock(name):
        if marker.is_file() and marker.read_text(encoding="utf-8") == recipe:
            return home
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        make(home)
        marker.write_text(recipe, encoding="utf-8")
    return home


@contextmanager
def _lock(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _make_torch(home: Path) -> None:
    """Resolve with apt's own solver over lists of its own, download, unpack."""
    if platform.machine() != "x86_64" or "bookworm" not in Path("/etc/os-release").read_text(encoding="utf-8"):
        raise Unavailable("Debian's torch 1.13 is unpacked on Debian 12 (x86_64) only")
    state, archives = home / "apt", home / "apt/archives"
    for folder in (state / "lists/partial", archives / "partial"):
        folder.mkdir(parents=True)
    options = [
        *("-o", f"Dir::State::Lists={state / 'lists'}"),
        *("-o", f"Dir::Cache={state}"),
        *("-o", "Debug::NoLocking=1"),
        *("-o", "APT::Sandbox::User=root"),
        *("-o", "Acquire::Retries=3"),
    ]
    _tried(["apt-get", *options, "update"], home)
    plan = _tried(["apt-get", *options, "install", "-s", "--no-install-recommends", "python3-torch"], home)
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    if not any(n == "python3-torch" for n in names):
        names = [*_dependencies(options, home), "python3-torch"]  # installed already: unpack it all the same
    _tried(["apt-get", *options, "download", *names], archives)
    for package in sorted(archives.glob("*.deb")):
        _tried(["dpkg-deb", "-x", str(package), str(home / "root")], home)
        package.unlink()
    shutil.rmtree(state)
    # Alternatives are made by scripts that are not run here.
    libraries = home / "root/usr/lib/x86_64-linux-gnu"
    for name in ("blas/libblas.so.3", "lapack/liblapack.so.3"):
        link = libraries / Path(name).name
        if (libraries / name).exists() and not link.exists():
            link.symlink_to(name)
    shutil.rmtree(home / "root/usr/share", ignore_errors=True)


def _dependencies(options: list[str], home: Path) -> list[str]:
    text = _tried(
        [
            *("apt-cache", *options, "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts"),
            *("--no-breaks", "--no-replaces", "--no-enhances", "libtorch1.13"),
        ],
        home,
    )
    return sorted({line for line in text.splitlines() if line and not line.startswith((" ", "<"))})


def _make_tensorflow(home: Path) -> None:
    python = next((p for v in ("3.11", "3.10", "3.9") if (p := shutil.which(f"python{v}"))), None)
    if python is None:
        raise Unavailable("tensorflow 2.15 needs a Python of 3.9 to 3.11")
    _tried([python, "-m", "venv", str(home / "venv")], home)
    _tried([*_pip(home), "tensorflow-cpu==2.15.*", "numpy<2"], home)


def _pip(home: Path) -> list[str]:
    python = str(home / "venv/bin/python")
    return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "5"]


def _tried(command: list[str], folder: Path) -> str:
    """Run a command, again after a failure; Unavailable with its last words."""
    said = ""
    for attempt in range(TRIES):
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
        if done.returncode == 0:
            return done.stdout
        said = (done.stderr or done.stdout).strip()[-500:]
        time.sleep(2.0 * 2**attempt)
    raise Unavailable(f"{command[0]} {' '.join(command[1:3])} failed {TRIES} times: {said}")


if __name__ == "__main__":
    for make in (with_torch, with_tensorflow):
        print(make(), file=sys.stderr)
