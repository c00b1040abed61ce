"""This machine's real GPUs, as `nvidia-smi` shows them."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

from policy.model import Node

#: Words of a product name that do not tell GPU types apart.
_NOISE = re.compile(r"\b(nvidia|tesla|geforce|quadro|graphics|device)\b|\d+\s*gb\b", re.IGNORECASE)
_PATIENCE_S = 20.0


def this_machine() -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """One node with this machine's GPUs and their indices; none where `nvidia-smi` is missing or shows nothing.

    A machine with several GPU types becomes one node a type (`host`, `host-2`, ...): a node has one type.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        answer = subprocess.run(
            [program, "--query-gpu=index,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return nodes_from(answer.stdout, platform.node() or "localhost")


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
