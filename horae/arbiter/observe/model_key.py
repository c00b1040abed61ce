"""The model key: under which name a job's measurements are shared.

Given by the user it is shared with every job of any tenant that gives the same, and with none that gives none: what
reads as another tenant's derived key is not that. Otherwise it is derived from what the job runs: the script and those
of its arguments that say what is computed (model, sizes, batch, precision, data), without those that only steer it
(learning rate, seed, paths, ports, lengths). A derived key is the tenant's own. Where the cluster does not tell all
that a job runs (on Slurm a script's arguments and environment), it is that job's own. `horae explain` shows the key;
`horae submit key=NAME` corrects it for what follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from horae.spec import OWN_PROFILE, JobSpec, program_of

#: Arguments that say what is computed.
_MATTERS = re.compile(
    r"(?:^|[-_.])(?:model|arch|architecture|network|net|backbone|encoder|decoder|config|cfg|task|dataset|data|"
    r"layers?|num_?layers|depth|width|hidden|hidden_?size|d_?model|dim|heads?|n_?heads?|nhid|emsize|vocab|vocab_?size|"
    r"batch|bs|batch_?size|seq|seq_?len|seq_?length|max_?length|bptt|img|image_?size|resolution|crop|"
    r"dtype|precision|fp16|bf16|amp|half|zero|stage)(?:$|[-_.])",
    re.IGNORECASE,
)
#: ... and those that contain such a word but only steer.
_STEERS = re.compile(
    r"(?:dir|path|file|out|output|save|log|resume|checkpoint|ckpt|seed|lr|learning|epochs?|steps?|workers|port|url|"
    r"every|freq|interval|name|tag|cache|test|eval|valid)",
    re.IGNORECASE,
)
LONGEST = 120
#: Before a given key that reads as another tenant's derived one.
_SHARED = "shared:"


def model_key(spec: JobSpec) -> str:
    """The key of a job; never empty."""
    tenant = spec.tenant or spec.owner or "anyone"
    if spec.model:
        first, slash, rest = spec.model.partition("/")
        if slash and (first != tenant or "/" in rest):
            return _SHARED + spec.model
        return spec.model
    program, arguments = program_of(spec.command)
    script = program.removesuffix(".py").removesuffix(".sh")
    parts = [f"{name}={value}" if value else name for name, value in sorted(_matter(arguments))]
    key = script + (":" + ",".join(parts) if parts else "")
    alone = spec.extra.get(OWN_PROFILE)
    return f"{tenant}/{key[:LONGEST]}" + (f"#{alone}" if alone else "")


def _matter(arguments: Sequence[str]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    i = 0
    while i < len(arguments):
        word = arguments[i]
        i += 1
        if not word.startswith("-"):
            name, _, value = word.partition("=")  # Hydra: model=resnet50 model.depth=50
            if value and _tells(name):
                found.add((name, _short(value)))
            continue
        name, _, value = word.lstrip("-").partition("=")
        if not value and i < len(arguments) and not arguments[i].startswith("-"):
            value = arguments[i]
            i += 1
        if _tells(name):
            found.add((name, _short(value)))
    return found


def _tells(name: str) -> bool:
    return _MATTERS.search(name) is not None and _STEERS.search(name) is None


def _short(value: str) -> str:
    """A path by its last part: where a thing lies does not matter."""
    return PurePosixPath(value).name if "/" in value else value
