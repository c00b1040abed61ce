"""`horae submit --sbatch ...`: a job's form as a batch script, handed in by sbatch as the user who calls; and `-i`: as
srun's command line.

    horae submit -g 1:8 -c ckpt --sbatch=--partition=gpu --sbatch=--time=12:00:00 -- python train.py

What the form says becomes sbatch's own options and the `horae:` word; the user's own options come after them, so
that they win. Nothing is asked of the arbiter: the job arrives at it through Slurm, as every job does.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from horae.port import FixConfiguration, Never, PortError
from horae.spec import JobSpec
from policy.model import BadInput
from slurm_plugin.errors import port_error

_GPUS = re.compile(r"^(?:--gres\b|--gpus\b|--gpus-per-\w+\b|-G)")
_WORD = re.compile(r"[^\s,=]+")
#: Of a batch job alone.
_BATCH = ("--parsable", "--requeue", "--open-mode=append")


def submit(jobs: Sequence[JobSpec], options: Sequence[str]) -> list[str]:
    """Entry point `horae.submitters: slurm`. The JobIds. Raises BadInput, Never (Slurm's refusal), FixConfiguration."""
    prepared = [(script(job), sbatch_options(job, options)) for job in jobs]  # all are checked before one is sent
    return [_sbatch(text, words, job.cwd) for job, (text, words) in zip(jobs, prepared, strict=True)]


def session(job: JobSpec, options: Sequence[str]) -> list[str]:
    """What an interactive job is on Slurm: srun's command line, on the caller's terminal. It waits its turn as every
    job there, and Slurm passes on between the terminal and the node. Raises BadInput, FixConfiguration."""
    if within := os.environ.get("SLURM_JOB_ID"):
        raise BadInput("you are in a job already, and srun would share its GPUs", field="SLURM_JOB_ID", value=within,
                       remedy="leave it first, or `srun --pty` for a step of it")  # fmt: skip
    program = shutil.which("srun")
    if program is None:
        raise FixConfiguration(
            "there is no srun on this host, and a terminal goes by no other way",
            "say it on a login node of the cluster",
        )
    words = [word for word in sbatch_options(job, options) if word not in _BATCH]
    env = ["env", *(f"{name}={value}" for name, value in job.env.items())] if job.env else []
    return [program, "--pty", "--ntasks=1", *words, *env, *job.command]


def script(job: JobSpec) -> str:
    """The batch script: `exec`, for Slurm signals the script's own process. Raises BadInput where it cannot say all."""
    if job.priority:
        raise BadInput(
            "is not carried by sbatch",
            field="priority",
            value=job.priority,
            remedy="`horae priority JOBID N` once it is in",
        )
    lines = ["#!/bin/bash"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.env.items()]
    words = [os.environ.get("HORAE_EXEC") or shutil.which("horae-exec") or "horae-exec"]
    words += ["--name", job.name, "--grace", f"{job.grace_s:g}", "--retries", str(job.retries)]
    if job.checkpoint:
        words += ["--checkpoint", job.checkpoint]
    if job.extra.get("self_checkpointing") == "true":
        words.append("--self-checkpointing")
    if "stop_signal" in job.extra:
        words += ["--stop-signal", job.extra["stop_signal"]]
    lines.append(f"exec {shlex.join([*words, '--', *job.command])}")
    return "\n".join(lines) + "\n"


def sbatch_options(job: JobSpec, options: Sequence[str]) -> list[str]:
    """Ours from the form, then the user's. Raises BadInput for a form that Slurm's options cannot say."""
    most = job.gpus.requested
    words = [*_BATCH, f"--job-name={job.name}", f"--chdir={job.cwd}"]
    elastic = job.elastic and (job.checkpoint is not None or job.extra.get("self_checkpointing") == "true")
    comment = [horae_word(job)] if elastic and not job.gpus.rigid else []
    if not any(_GPUS.match(option) for option in options):
        words.append(f"--gpus={most}" if comment else f"--gpus={_one_type(job)}{most}")
    if job.tenant and job.tenant != job.owner:
        words.append(f"--account={job.tenant}")
    if job.time_limit_s:
        words.append(f"--time={math.ceil(job.time_limit_s / 60)}")
    if job.cpus_per_gpu:
        words.append(f"--cpus-per-gpu={math.ceil(job.cpus_per_gpu)}")
    if job.memory_per_gpu:
        words.append(f"--mem-per-gpu={math.ceil(job.memory_per_gpu / (1 << 20))}M")
    own = [option for option in options if option.startswith("--comment=")]
    if comment and own:  # the site's own comment text stands before our word
        comment.insert(0, own[-1].removeprefix("--comment="))
    rest = [option for option in options if not (comment and option in own)]
    return [*words, *rest, *([f"--comment={' '.join(comment)}"] if comment else [])]


def _one_type(job: JobSpec) -> str:
    """The type of a job that keeps its shape, as Slurm's own options say it. Raises BadInput for what they cannot."""
    if job.type_choice is None:
        return ""
    if len(job.gpu_types) != 1 or job.prefer_types or job.forbid_types:
        raise BadInput(
            "Slurm takes one type of a job that keeps its shape", field="gpu_types",
            remedy="one --gpu-type, or an elastic job: --gpus MIN:MAX and --checkpoint",
        )  # fmt: skip
    return f"{job.gpu_types[0]}:"


def horae_word(job: JobSpec) -> str:
    gpus = job.gpus
    pairs: dict[str, str] = {}
    if gpus.allowed:
        pairs["allowed"] = "/".join(map(str, gpus.allowed))
    else:
        pairs["min"] = str(gpus.min)
        if gpus.max is not None:
            pairs["max"] = str(gpus.max)
    if job.app and job.app != job.name:
        pairs["app"] = job.app
    if job.model:
        pairs["key"] = job.model
    if job.gpu_types:
        pairs["types"] = "/".join(job.gpu_types)
    if job.prefer_types:
        pairs["prefer"] = "/".join(job.prefer_types)
    if job.forbid_types:
        pairs["forbid"] = "/".join(job.forbid_types)
    if job.iterations:
        pairs["iters"] = f"{job.iterations:.0f}"
    pairs["grace"] = str(max(math.ceil(job.grace_s), 1))
    if job.checkpoint and _WORD.fullmatch(job.checkpoint):  # for people and tools; horae-exec is told in any case
        pairs["ckpt"] = job.checkpoint
    for key, value in pairs.items():
        if not _WORD.fullmatch(value):
            raise BadInput("cannot stand in a comment", field=key, value=value, remedy="leave out blanks, commas and =")
    return "horae:" + ",".join(f"{key}={value}" for key, value in pairs.items())


def _sbatch(text: str, words: Sequence[str], cwd: str) -> str:
    try:
        done = subprocess.run(
            ["sbatch", *words], input=text, capture_output=True, text=True, check=False, timeout=120, cwd=cwd or None
        )
    except FileNotFoundError as error:
        raise FixConfiguration("there is no sbatch on this host", "submit from a login node of the cluster") from error
    except subprocess.TimeoutExpired as error:
        raise port_error("Socket timed out", "sbatch") from error
    if done.returncode != 0:
        raise _refused(done.stderr)
    return done.stdout.strip().split(";")[0]


def _refused(text: str) -> PortError:
    """sbatch's own words. The module's sentence stands before Slurm's `Unspecified error`."""
    said = [line.removeprefix("sbatch: error: ") for line in text.splitlines() if line.strip()]
    ours = [line.removeprefix("horae: ") for line in said if line.startswith("horae: ")]
    if ours:
        return Never(f"Slurm refuses it: {'; '.join(ours)}")
    error = port_error(text, "sbatch")
    return error if not isinstance(error, FixConfiguration) else Never(f"Slurm refuses it: {'; '.join(said)}")
