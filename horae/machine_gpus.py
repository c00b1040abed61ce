"""This machine's real GPUs, as `nvidia-smi` shows them, and how much of their time they compute."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from threading import Lock, Thread

from policy.model import Node

#: Words of a product name that do not tell GPU types apart.
_NOISE = re.compile(r"\b(nvidia|tesla|geforce|quadro|graphics|device)\b|\d+\s*gb\b", re.IGNORECASE)
_PATIENCE_S = 20.0
#: `nvidia-smi` is asked for the use of GPUs this often, and an answer is believed so long.
EVERY_S, STALE_S = 10.0, 45.0


def this_machine() -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """One node with this machine's GPUs and their indices; none where `nvidia-smi` is missing or shows nothing.

    A machine with several GPU types becomes one node a type (`host`, `host-2`, ...): a node has one type.
    """
    return nodes_from(_asked("index,name"), platform.node() or "localhost")


def _asked(what: str) -> str:
    """A line a GPU; "" where `nvidia-smi` is missing, fails, or is late."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            [program, f"--query-gpu={what}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def use_from(listing: str) -> dict[int, float]:
    """By index the part of its time that it computes, from lines of `index, per cent`. What tells no number (a GPU in
    parts, say) is left out."""
    found = {}
    for line in listing.splitlines():
        index, _, percent = line.partition(",")
        if index.strip().isdigit() and percent.strip().isdigit():
            found[int(index)] = min(int(percent), 100) / 100
    return found


class Use:
    """The newest utilisation of this machine's GPUs. Asking never waits: another thread asks `nvidia-smi`."""

    def __init__(self, ask: Callable[[], str] = lambda: _asked("index,utilization.gpu")) -> None:
        self._ask, self._lock = ask, Lock()
        self._found: Mapping[int, float] = {}
        self._at_s = self._asked_s = float("-inf")
        self._asking: Thread | None = None

    def newest(self) -> Mapping[int, float]:
        """By index; empty where none is newer than `STALE_S`."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._asked_s >= EVERY_S and (self._asking is None or not self._asking.is_alive()):
                self._asked_s, self._asking = now_s, Thread(target=self._look, name="nvidia-smi", daemon=True)
                self._asking.start()
            return self._found if now_s - self._at_s <= STALE_S else {}

    def _look(self) -> None:
        found = use_from(self._ask())
        with self._lock:
            if found:
                self._found, self._at_s = found, time.monotonic()


def nodes_from(listing: str, host: str) -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """Nodes from lines of `index, name`, each with the indices of its GPUs."""
    by_type: dict[str, list[int]] = {}
    for line in listing.splitlines():
        index, comma, name = line.partition(",")
        if comma and index.strip().isdigit():
            by_type.setdefault(type_of(name), []).append(int(index))
    return tuple(
        (Node(name=host if i == 0 else f"{host}-{i + 1}", gpu_type=gpu_type, gpus=len(indices)), tuple(indices))
        for i, (gpu_type, indices) in enumerate(by_type.items())
    )


def type_of(product: str) -> str:
    """`NVIDIA A100-SXM4-80GB` -> `a100-sxm4`: a short name, the same for the same product."""
    words = re.split(r"[^a-z0-9]+", _NOISE.sub(" ", product.lower()))
    return "-".join(word for word in words if word and not re.fullmatch(r"\d+gb", word)) or "gpu"
