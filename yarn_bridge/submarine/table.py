"""Every option of `submarine job run`, and what becomes of it here: the one list that the parser obeys, that
`--dry-run` prints and that the guide shows.

The options are those of Hadoop 3.2's hadoop-yarn-submarine (called 0.2 here) and of apache/submarine 0.3 to 0.6. Ours
are marked with `ADDED`; they are options of the same command, so that a script changes by a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ADDED = "Horae"
FRAMEWORKS = ("tensorflow", "pytorch", "mxnet")


class Fate(StrEnum):
    """What happens to an option that was given."""

    TAKEN = "taken"  #: means what it meant
    CHANGED = "changed"  #: carried out in another way
    CONDITION = "on a condition"  #: taken in one form, refused in another
    NOTHING = "no effect"  #: has nothing to act on here; accepted and said, with `--strict` refused


class Takes(StrEnum):
    VALUE = "value"
    VALUES = "values"  #: may be given again and again
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Option:
    """`since`: the first release that knows it. `yaml`: its place in the file of `-f`; roles stand for theirs."""

    name: str
    takes: Takes
    since: str
    fate: Fate
    text: str
    yaml: str = ""
    frameworks: tuple[str, ...] = FRAMEWORKS


def _one(name: str, since: str, fate: Fate, text: str, yaml: str = "", only: tuple[str, ...] = FRAMEWORKS) -> Option:
    return Option(name, Takes.VALUE, since, fate, text, yaml, only)


def _many(name: str, since: str, fate: Fate, text: str, yaml: str = "") -> Option:
    return Option(name, Takes.VALUES, since, fate, text, yaml)


def _flag(name: str, since: str, fate: Fate, text: str, yaml: str = "", only: tuple[str, ...] = FRAMEWORKS) -> Option:
    return Option(name, Takes.NOTHING, since, fate, text, yaml, only)


_TF = ("tensorflow",)
_SERVED = ("tensorflow", "mxnet")
_MX = ("mxnet",)
_IMAGE = "carried as a YARN Docker artifact; needs a container executor with Docker, on which this is untested"
_SAME_IMAGE = "the workers' image; another one has no effect: they share containers"

OPTIONS: tuple[Option, ...] = (
    _one("f", "0.5", Fate.TAKEN, "the YAML file; an option may stand there or on the command line, not in both"),
    _one(
        "framework",
        "0.3",
        Fate.TAKEN,
        "tensorflow (default), pytorch or mxnet; says which variables each process is given when the gang forms",
        "spec.framework",
    ),
    _one("name", "0.2", Fate.TAKEN, "the job's name; required", "spec.name"),
    _one(
        "input_path",
        "0.2",
        Fate.TAKEN,
        "replaces %input_path% in launch commands; required with --num_workers",
        "configs.input_path",
    ),
    _one(
        "checkpoint_path",
        "0.2",
        Fate.TAKEN,
        "replaces %checkpoint_path%; an elastic job's checkpoints of the SDK are there too. Default: "
        "hdfs:///user/YOU/submarine/jobs/NAME/staging/checkpoint_path",
        "configs.checkpoint_path",
    ),
    _one(
        "saved_model_path",
        "0.2",
        Fate.TAKEN,
        "replaces %saved_model_path%; default: the checkpoint path",
        "configs.saved_model_path",
    ),
    _one("num_workers", "0.2", Fate.CONDITION, "workers at first; 0 is for --tensorboard alone", "worker.replicas"),
    _one(
        "worker_resources",
        "0.2",
        Fate.CONDITION,
        "memory, vcores, GPUs and others (fpga) of a worker. One GPU a worker can be elastic. Several for one process: "
        "each worker has a node of its own, and the job is rigid; see --split_workers. None: YARN runs it as it comes",
        "worker.resources",
    ),
    _one(
        "worker_launch_cmd",
        "0.2",
        Fate.TAKEN,
        "run by bash in every worker, under horae-exec; required",
        "worker.launch_cmd",
    ),
    _one("worker_docker_image", "0.2", Fate.TAKEN, _IMAGE, "worker.docker_image"),
    _one(
        "num_ps",
        "0.2",
        Fate.CHANGED,
        "parameter servers; they run beside the workers, in the workers' containers, and the job is a rigid gang",
        "ps.replicas",
        _SERVED,
    ),
    _one(
        "ps_resources",
        "0.2",
        Fate.CHANGED,
        "memory and vcores: added to the containers of the workers; a server sees no GPU",
        "ps.resources",
        _SERVED,
    ),
    _one("ps_launch_cmd", "0.2", Fate.TAKEN, "run by bash as every parameter server", "ps.launch_cmd", _SERVED),
    _one("ps_docker_image", "0.2", Fate.CONDITION, _SAME_IMAGE, "ps.docker_image", _SERVED),
    _one("num_schedulers", "0.5", Fate.CHANGED, "0 or 1; beside the workers, as --num_ps", "scheduler.replicas", _MX),
    _one("scheduler_resources", "0.5", Fate.CHANGED, "as --ps_resources", "scheduler.resources", _MX),
    _one("scheduler_launch_cmd", "0.5", Fate.TAKEN, "run by bash as the scheduler", "scheduler.launch_cmd", _MX),
    _one("scheduler_docker_image", "0.5", Fate.CONDITION, _SAME_IMAGE, "scheduler.docker_image", _MX),
    _one("docker_image", "0.2", Fate.TAKEN, _IMAGE, "configs.docker_image"),
    _one("queue", "0.2", Fate.TAKEN, "the YARN queue of the job's service", "scheduling.queue"),
    _many(
        "env", "0.2", Fate.TAKEN, "NAME=VALUE for every role; the same name again appends after a ':'", "configs.envs"
    ),
    _flag(
        "tensorboard",
        "0.2",
        Fate.CHANGED,
        "runs beside the first worker while the job trains, where the program is installed; its address is in the "
        "job's output; with --num_workers 0 a job of its own, until it is cancelled",
        "tensorBoard",
        _TF,
    ),
    _one("tensorboard_resources", "0.2", Fate.CHANGED, "as --ps_resources", "tensorBoard.resources", _TF),
    _one("tensorboard_docker_image", "0.2", Fate.CONDITION, _SAME_IMAGE, "tensorBoard.docker_image", _TF),
    _many(
        "quicklink",
        "0.2",
        Fate.NOTHING,
        "a link names a component instance (master-0), and a worker's instance changes with every resize",
        "configs.quicklinks",
    ),
    _many(
        "localization",
        "0.2",
        Fate.CONDITION,
        "REMOTE:LOCAL[:rw]. A local file or folder is put into the job's staging folder in HDFS when it is handed in; "
        "an absolute LOCAL needs a docker image, and else is ./NAME; what YARN cannot fetch (nfs) has no effect",
        "configs.localizations",
    ),
    _many(
        "conf",
        "0.3",
        Fate.CONDITION,
        "submarine.runtime.class, tony.yarn.queue, tony.containers.resources (with ::NAME and #archive); any other key "
        "has no effect, and is said with what to write instead",
    ),
    _flag(
        "wait_job_finish",
        "0.2",
        Fate.TAKEN,
        "the command ends with the job, 0 if it completed",
        "configs.wait_job_finish",
    ),
    _flag("verbose", "0.2", Fate.CHANGED, "prints this table for the options that were given"),
    _one(
        "keytab",
        "0.2",
        Fate.CONDITION,
        "hdfs:///... (0600, in your home) or file:///... (on every node); needs --principal; no other has an effect",
        "security.keytab",
    ),
    _one("principal", "0.2", Fate.TAKEN, "user/host@REALM of the service; needs --keytab", "security.principal"),
    _flag(
        "distribute_keytab",
        "0.2",
        Fate.CONDITION,
        "Horae copies no key: no effect unless the keytab is in HDFS already",
        "security.distribute_keytab",
    ),
    _flag("insecure", "0.3", Fate.NOTHING, "the arbiter authenticates as its site's configuration says"),
    _flag("help", "0.2", Fate.TAKEN, "also -h"),
    _one(
        "min_workers", ADDED, Fate.TAKEN, "makes the job elastic: the fewest workers (default 1)", "worker.min_replicas"
    ),
    _one(
        "max_workers",
        ADDED,
        Fate.TAKEN,
        "makes the job elastic: the most workers (default --num_workers)",
        "worker.max_replicas",
    ),
    _flag(
        "split_workers",
        ADDED,
        Fate.TAKEN,
        "a worker of n GPUs becomes n workers of one GPU, n times the processes; it can then be elastic",
    ),
    _flag("strict", ADDED, Fate.TAKEN, "what has no effect here is refused instead of said"),
    _many("without", ADDED, Fate.TAKEN, "tensorboard or quicklink: with --strict, goes without it all the same"),
    _flag(
        "self_checkpointing",
        ADDED,
        Fate.TAKEN,
        "an elastic command keeps checkpoints of its own: its exit code 86 is believed",
    ),
    _one("tenant", ADDED, Fate.TAKEN, "whose share it counts to; default: you"),
    _one("app", ADDED, Fate.TAKEN, "the training goal it belongs to; default: its name"),
    _many("gpu_type", ADDED, Fate.TAKEN, "a GPU type it may run on; again for more"),
    _one("grace", ADDED, Fate.TAKEN, "seconds it may take to checkpoint and leave (60)"),
    _one("retries", ADDED, Fate.TAKEN, "failures after which it is failed for good; default 0 (3 if elastic)"),
    _flag(
        "dry_run", ADDED, Fate.TAKEN, "print what would be handed in, and what becomes of each option; also --dry-run"
    ),
    _flag("json", ADDED, Fate.TAKEN, "the same as JSON; hands in unless with --dry_run"),
    _one("socket", ADDED, Fate.TAKEN, "the arbiter's socket; default: found by itself"),
)

BY_NAME = {option.name: option for option in OPTIONS}
#: Other spellings of our own options, as the rest of `horae` writes them.
ALIASES = {"h": "help", "dry-run": "dry_run", "min-workers": "min_workers", "max-workers": "max_workers"}


def markdown() -> str:
    """The table of the guide."""
    lines = ["| option | since | in the file | what happens | |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        dashes = "-" if option.name == "f" else "--"
        place = f"`{yaml_place(option)}`" if option.yaml else ""
        only = "" if option.frameworks == FRAMEWORKS else f" ({', '.join(option.frameworks)} only)"
        text = option.text.replace("|", "\\|")
        lines.append(f"| `{dashes}{option.name}`{only} | {option.since} | {place} | {option.fate} | {text} |")
    return "\n".join(lines)


def yaml_place(option: Option) -> str:
    """The full key of an option in the file: roles stand below `roles`."""
    head = option.yaml.partition(".")[0]
    return f"roles.{option.yaml}" if head in ("worker", "ps", "scheduler") else option.yaml
