"""This machine's real GPUs, as `nvidia-smi` shows them, how much of their time they compute, and who holds them."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import PurePath
from threading import Lock, Thread

from horae.elastic.supervisor import processes
from policy.model import Node

#: Words of a product name that do not tell GPU types apart.
_NOISE = re.compile(r"\b(nvidia|tesla|geforce|quadro|graphics|device)\b|\d+\s*gb\b", re.IGNORECASE)
_PATIENCE_S = 20.0
#: `nvidia-smi` is asked this often, and an answer about the use of GPUs is believed so long.
EVERY_S, STALE_S = 10.0, 45.0
#: Hold every GPU for as long as the machine is up, and compute for others, who are listed themselves.
_SERVERS = frozenset({"nvidia-cuda-mps-server"})


def this_machine() -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """One node with this machine's GPUs and their indices; none where `nvidia-smi` is missing or shows nothing.

    A machine with several GPU types becomes one node a type (`host`, `host-2`, ...): a node has one type.
    """
    return nodes_from(_asked("gpu=index,name"), platform.node() or "localhost")


def _asked(what: str) -> str:
    """A line a GPU, or process; "" where `nvidia-smi` is missing, fails, or is late."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            [program, f"--query-{what}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def use_from(listing: str) -> dict[int, float]:
    """By index the part of its time that it computes, from lines of `index, uuid, per cent`. What tells no number (a
    GPU in parts, say) is left out."""
    found = {}
    for line in listing.splitlines():
        index, _, percent = (word.strip() for word in (line.split(",") + [""] * 3)[:3])
        if index.isdigit() and percent.isdigit():
            found[int(index)] = min(int(percent), 100) / 100
    return found


def holders_from(listing: str, computing: str) -> dict[int, set[int]]:
    """By index the processes that hold memory there to compute, from such lines and those of `uuid, pid, name`."""
    index_of = {
        words[1].strip(): words[0].strip() for line in listing.splitlines() if len(words := line.split(",")) > 1
    }
    found: dict[int, set[int]] = {}
    for line in computing.splitlines():
        uuid, pid, name = (word.strip() for word in (line.split(",", 2) + [""] * 3)[:3])
        index = index_of.get(uuid, "")
        if index.isdigit() and pid.isdigit() and PurePath(name).name not in _SERVERS:
            found.setdefault(int(index), set()).add(int(pid))
    return found


class Use:
    """The newest look at this machine's GPUs. Asking never waits: another thread asks `nvidia-smi`."""

    def __init__(self, ask: Callable[[str], str] = _asked) -> None:
        self._ask, self._lock = ask, Lock()
        self._found: Mapping[int, float] = {}
        self._held: Mapping[int, Mapping[int, int]] = {}
        self._at_s = self._asked_s = self._looked_s = float("-inf")
        self._asking: Thread | None = None

    def newest(self) -> Mapping[int, float]:
        """The part of its time that each computes, by index; empty where no number is newer than `STALE_S`."""
        self.refresh()
        with self._lock:
            return self._found if time.monotonic() - self._at_s <= STALE_S else {}

    def refresh(self) -> bool:
        """Begin a look where none is younger than `EVERY_S`. Whether the newest is young enough to start jobs by."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._asked_s >= EVERY_S and (self._asking is None or not self._asking.is_alive()):
                self._asked_s, self._asking = now_s, Thread(target=self._look, name="nvidia-smi", daemon=True)
                self._asking.start()
            return now_s - self._looked_s <= 2 * EVERY_S

    def holders(self) -> Mapping[int, list[int]]:
        """By index the processes that were seen to hold a GPU, and still live: ours and strangers'."""
        with self._lock:
            held = self._held
        living = {index: [pid for pid, since in pids.items() if _began(pid) == since] for index, pids in held.items()}
        return {index: sorted(pids) for index, pids in living.items() if pids}

    def _look(self) -> None:
        listing = self._ask("gpu=index,uuid,utilization.gpu")
        found = use_from(listing)
        holders = holders_from(listing, self._ask("compute-apps=gpu_uuid,pid,name"))
        held = {index: {pid: began for pid in pids if (began := _began(pid))} for index, pids in holders.items()}
        with self._lock:
            self._looked_s, self._held = time.monotonic(), held
            if found:
                self._found, self._at_s = found, time.monotonic()


def _began(pid: int) -> int:
    """When it was started; 0 of one that is over, or that cannot be seen."""
    try:
        return processes.began(pid)
    except OSError:
        return 0


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
