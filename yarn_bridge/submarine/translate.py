"""A Submarine command -> one job of Horae. Pure: reads the file of `-f`, asks nothing of any cluster.

Workers are the job's gang; what a worker runs, its GPUs, memory and vcores carry over. Without `--min_workers` or
`--max_workers` the job is what it was: started once at its size, never stopped by us. With them it is elastic, and its
command must checkpoint when asked (the SDK does). With parameter servers or a scheduler, without GPUs, or with several
GPUs a process it is rigid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from horae.elastic.protocol import EXTRA_SELF_CHECKPOINTING
from horae.elastic.supervisor.tasks import FRAMEWORK, SERVERS
from policy.model import BadInput
from yarn_bridge.submarine import resources, roles, service, values, words, yamlfile
from yarn_bridge.submarine.given import Given, Wanted
from yarn_bridge.submarine.local_resources import LocalResources
from yarn_bridge.submarine.paths import Paths
from yarn_bridge.submarine.resources import Resources
from yarn_bridge.submarine.roles import ServerRole
from yarn_bridge.submarine.table import FRAMEWORKS, Fate
from yarn_bridge.submarine.values import Localization, LocalPolicy

_LEAVABLE = ("tensorboard", "quicklink")
#: options whose value names something
_NAMES = ("docker_image", "queue")


@dataclass(frozen=True, slots=True)
class Line:
    """One option that was given, and what becomes of it."""

    option: str
    value: str
    fate: Fate
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    job: dict[str, Any] = field(default_factory=dict)  #: the body of `POST /v1/jobs`, one job
    lines: tuple[Line, ...] = ()
    wait: bool = False
    verbose: bool = False
    dry_run: bool = False
    json: bool = False
    help: bool = False
    socket: str | None = None
    uploads: tuple[Localization, ...] = ()  #: what is to be in HDFS before the job is handed in


def translate(arguments: Sequence[str], user: str) -> Translation:
    """The words after `job run`, given by `user`. Raises BadInput."""
    wanted = words.parse(arguments)
    if wanted.has("help") or not arguments:
        return Translation(help=True)
    file = wanted.get("f")
    role_env = yamlfile.read(file.value, wanted) if file is not None else {}
    return _Job(wanted, role_env, user).translation()


class _Job:
    def __init__(self, wanted: Wanted, role_env: dict[str, dict[str, str]], user: str) -> None:
        self.wanted = wanted
        self.role_env = role_env
        self.home = f"hdfs:///user/{user}"
        self.notes: dict[str, str] = {}  #: option -> what is to be said about it here
        self.unseen: list[str] = []  #: of what the servers asked for and do not get
        self.strict = wanted.has("strict")
        self.framework = self._framework()
        self._leave_out_empty()
        self._refusals()
        self._strays()
        self.name = wanted.need("name", "a job has a name").value
        self.staging = f"{self.home}/submarine/jobs/{self.name}/staging"
        self.paths = Paths(wanted, self.staging, self.notes)
        self.local = LocalResources(wanted, LocalPolicy(self.staging, self.strict), self.notes, self.home)
        self.workers = self._workers()
        self.board_alone = self.workers == 0
        self.resources = self._board_size() if self.board_alone else self._worker_resources()
        self.split = wanted.has("split_workers")
        self.workers = self.workers or 1
        self.roles = [role for role in (self._role("ps"), self._role("scheduler")) if role is not None]
        self._check_roles()
        self._check_elastic()

    def translation(self) -> Translation:
        wanted = self.wanted
        return Translation(
            job=self._board_job() if self.board_alone else self._job(),
            lines=self._lines(),
            wait=wanted.has("wait_job_finish"),
            verbose=wanted.has("verbose"),
            dry_run=wanted.has("dry_run"),
            json=wanted.has("json"),
            socket=wanted.text("socket"),
            uploads=self.local.uploads,
        )

    # --- what is refused ----------------------------------------------------------------------------------

    def _framework(self) -> str:
        given = self.wanted.get("framework")
        name = "tensorflow" if given is None else given.value.lower()
        if given is not None and name not in FRAMEWORKS:
            raise given.bad("is no framework of Submarine's on YARN", f"one of {', '.join(FRAMEWORKS)}")
        for item in self.wanted:
            if name not in item.option.frameworks:
                raise item.bad(f"is not for {name}", f"take it out; it is for {', '.join(item.option.frameworks)}")
        return name

    def _refusals(self) -> None:
        without = self.wanted.all("without")
        for item in without:
            if item.value not in _LEAVABLE:
                raise item.bad("cannot be left out", f"one of {', '.join(_LEAVABLE)}")
        self.left_out = {item.value for item in without}
        for item in self.wanted:
            kind = "tensorboard" if item.option.name.startswith("tensorboard") else item.option.name
            if kind not in _LEAVABLE:
                continue
            if kind == "quicklink":
                values.check_quicklink(item)
            if item.option.name == "tensorboard_resources":
                resources.parse(item)
            if self.strict and kind not in self.left_out:
                raise item.bad(f"is refused: {self._why(kind)}", f"take --strict out, or add --without {kind}")
            if kind == "quicklink" or kind in self.left_out or not self.wanted.has("tensorboard"):
                self.notes[item.option.name] = f"no effect: {self._why(kind)}"

    def _leave_out_empty(self) -> None:
        """An image or a queue without a name, as a script writes whose variable is not set: YARN would take it for one
        that is called so."""
        for item in [each for each in self.wanted if each.option.name.endswith(_NAMES) and not each.value.strip()]:
            if self.strict:
                raise item.bad("is empty", "name one, or take it out")
            self.wanted.items.remove(item)
            self.wanted.idle.append((item.field, item.value, "no effect: it is empty"))

    def _strays(self) -> None:
        for word, error in self.wanted.strays:
            if self.strict:
                raise error
            self.wanted.idle.append((word, "", "no effect: it belongs to no option, and Submarine lost it too"))

    def _why(self, kind: str) -> str:
        if kind == "quicklink":
            return "a worker's instance changes with every resize, so that no link would hold"
        if not self.wanted.has("tensorboard"):
            return "there is no --tensorboard"
        path = self.wanted.text("checkpoint_path") or "CHECKPOINT_PATH"
        return (
            "it is there only while the job trains, beside its workers; where you have a shell, "
            f"`tensorboard --logdir={path}` shows the same"
        )

    # --- the gang -----------------------------------------------------------------------------------------

    def _workers(self) -> int:
        count = self.wanted.whole("num_workers", 1)
        given = self.wanted.get("num_workers")
        if count == 0:
            assert given is not None
            if self.strict or not self.wanted.has("tensorboard"):
                raise given.bad("no workers: there is nothing to train", "at least 1, or --tensorboard alone")
            return 0
        path = self.wanted.get("input_path")
        if given is not None and (path is None or self.strict):
            self.wanted.need("input_path", "Submarine asks for it with --num_workers")
        elif path is not None and not path.value.strip():
            self.notes["input_path"] = "no effect: it is empty"
        return count

    def _worker_resources(self) -> Resources:
        given = self.wanted.need("worker_resources", "YARN gives containers of a size")
        found = resources.parse(given)
        if not self.strict:
            return found
        if found.others:
            raise given.bad(f"{', '.join(sorted(found.others))}: Horae shares GPUs only", "take it out")
        if found.gpus == 0:
            raise given.bad("asks for no GPU: Horae shares GPUs", "add gpu=1, or take --strict out")
        if found.gpus > 1 and not self.wanted.has("split_workers"):
            total = found.gpus * self.workers
            raise given.bad(
                f"{found.gpus} GPUs for one process: Horae runs one process a GPU",
                f"if the command can run as {total} processes of one GPU each, add --split_workers",
            )
        return found

    def _board_size(self) -> Resources:
        given = self.wanted.get("tensorboard_resources")
        flag = self.wanted.get("tensorboard")
        assert flag is not None  # it is why there may be no worker
        return resources.parse(given or Given(flag.option, roles.BOARD_SIZE, flag.field, flag.where, flag.line))

    @property
    def board(self) -> ServerRole | None:
        """TensorBoard beside the first worker."""
        if not self.wanted.has("tensorboard") or "tensorboard" in self.left_out or self.board_alone:
            return None
        return ServerRole(
            roles.BOARD, 1, self._board_size(), roles.board_command(self.paths.of("checkpoint_path") or ""), {}
        )

    @property
    def servers(self) -> list[ServerRole]:
        """All that runs beside workers."""
        return [*([self.board] if self.board else []), *self.roles]

    @property
    def gpus_each(self) -> int:
        """GPUs of one process."""
        return min(self.resources.gpus, 1) if self.split else self.resources.gpus

    @property
    def containers(self) -> int:
        return self.workers * (max(self.resources.gpus, 1) if self.split else 1)

    def _check_elastic(self) -> None:
        given = self.wanted.get("min_workers") or self.wanted.get("max_workers")
        if given is not None and self.gpus_each != 1:
            what = "without GPUs" if self.gpus_each == 0 else f"of {self.gpus_each} GPUs a process"
            remedy = "add gpu=1 to --worker_resources" if self.gpus_each == 0 else "add --split_workers"
            raise given.bad(f"a job {what} is rigid", f"{remedy}, or take {given.field} out")

    def _role(self, name: str) -> ServerRole | None:
        count = self.wanted.whole(f"num_{name}" if name == "ps" else f"num_{name}s", 0)
        asked = [self.wanted.get(f"{name}_{each}") for each in ("resources", "launch_cmd", "docker_image")]
        if count == 0:
            for stray in (item for item in asked if item is not None):
                if self.strict:
                    raise stray.bad(f"there is no {name} to use it", "take it out, or say how many there are")
                self.notes[stray.option.name] = f"no effect: there is no {name}"
            return None
        size = self.wanted.need(f"{name}_resources", f"there are {count} of them")
        found = resources.parse(size)
        if found.gpus or found.others:
            if self.strict:
                raise size.bad(f"a {name} with {found.text}: GPUs are the workers'", "memory and vcores only")
            self.unseen.append(f"a {name} sees no GPU")
        command = self.paths.filled(self.wanted.need(f"{name}_launch_cmd", f"there are {count} of them"))
        self._check_image(name)
        return ServerRole(name, count, found, command, self.role_env.get(name, {}))

    def _check_image(self, name: str) -> None:
        """Of servers: they are in the workers' containers."""
        image, workers = self.wanted.get(f"{name}_docker_image"), self.wanted.text("worker_docker_image")
        if image is None or image.value == (workers or self.wanted.text("docker_image")):
            return
        text = f"another image than the workers': a {name} runs beside them, in their containers"
        remedy = "one image that holds both, for --docker_image"
        if self.strict:
            raise image.bad(text, remedy)
        self.notes[image.option.name] = f"no effect: {text} ({remedy})"

    def _check_roles(self) -> None:
        by_name = {role.name: role for role in self.roles}
        for name in self.role_env:
            if name != "worker" and name not in by_name:
                raise BadInput(f"there is no {name} to use it", field=f"roles.{name}.envs", remedy="take it out")
        if not self.roles:
            return
        for option in ("min_workers", "max_workers"):
            given = self.wanted.get(option)
            if given is not None:
                raise given.bad(f"a job with {self.roles[0].name} is rigid", f"take --{option} out")
        if self.framework == "tensorflow" and self.workers < 2:
            given = self.wanted.need("num_ps", "")
            raise given.bad("parameter servers for one worker", "at least --num_workers 2, or no parameter server")
        if self.framework == "mxnet" and {"ps", "scheduler"} - set(by_name):
            missing = "--num_ps" if "ps" not in by_name else "--num_schedulers 1"
            raise BadInput("MXNet's servers need each other", field="job run", remedy=f"add {missing}")
        given = self.wanted.get("num_schedulers")
        if given is not None and by_name["scheduler"].count > 1:
            raise given.bad("is more than one", "MXNet has one scheduler")

    # --- the job ------------------------------------------------------------------------------------------

    def _board_job(self) -> dict[str, Any]:
        """TensorBoard and nothing else: it runs until it is cancelled."""
        path = self.wanted.text("checkpoint_path") or f"{self.home}/submarine/jobs"
        return {
            "name": self.name,
            "command": ["bash", "-c", roles.board_command(path)],
            "gpus": 0,
            "workers": 1,
            "elastic": False,
            "env": values.environment(self.wanted.all("env")),
            "memory_per_gpu": self.resources.memory_mb << 20,
            "cpus_per_gpu": float(self.resources.vcores),
            "retries": 0,
            "extra": self._extra({}),
        }

    def _job(self) -> dict[str, Any]:
        wanted, share = self.wanted, max(self.gpus_each, 1)
        command = self.paths.filled(wanted.need("worker_launch_cmd", "what shall the workers run?"))
        elastic = wanted.has("min_workers") or wanted.has("max_workers")
        env = values.environment(wanted.all("env"))
        servers = self.servers
        beside = roles.beside(servers, self.containers)
        split = self.resources.gpus if self.split and self.resources.gpus else 1
        job: dict[str, Any] = {
            "name": self.name,
            "command": ["bash", "-c", command],
            "gpus": self._gpus(elastic),
            "elastic": elastic,
            "env": {**env, **self.role_env.get("worker", {}), FRAMEWORK: self.framework},
            "memory_per_gpu": ((self.resources.memory_mb << 20) // split + (beside.memory_mb << 20)) // share,
            "cpus_per_gpu": (self.resources.vcores / split + beside.vcores) / share,
            "retries": wanted.whole("retries", 3 if elastic else 0),
            "extra": self._extra(env),
        }
        if self.gpus_each != 1:
            job["workers"] = self.workers
        if servers:
            job["env"][SERVERS] = roles.words(servers)
            self._note_servers(servers, beside)
        if elastic:
            job["checkpoint"] = self.paths.checkpoint()
            if wanted.has("self_checkpointing"):
                job["extra"][EXTRA_SELF_CHECKPOINTING] = "true"
        elif (given := wanted.get("self_checkpointing")) is not None:
            raise given.bad("is for an elastic job", "add --min_workers or --max_workers, or take it out")
        for name in ("tenant", "app"):
            if (text := wanted.text(name)) is not None:
                job[name] = text
        if (given := wanted.get("grace")) is not None:
            job["grace_s"] = float(wanted.whole("grace", 60))
        if types := [item.value for item in wanted.all("gpu_type")]:
            job["gpu_types"] = types
        return job

    def _note_servers(self, servers: Sequence[ServerRole], beside: Resources) -> None:
        size = f"{beside.memory_mb} MB and {beside.vcores} vcores"
        for role in servers:
            told = [f"beside the workers: each container is larger by {size}", *self.unseen]
            self.notes.setdefault(f"{role.name}_resources", "; ".join(told))
        if self.board:
            self.notes["tensorboard"] = "runs beside the first worker; its address is in the job's output"
            image = self.wanted.get("tensorboard_docker_image")
            if image is not None and image.value != self.wanted.text("docker_image"):
                self.notes[image.option.name] = "no effect: TensorBoard runs in the workers' containers"

    def _gpus(self, elastic: bool) -> int | dict[str, int]:
        wanted, share = self.wanted, self.resources.gpus
        if self.split and share > 1:
            self.notes["worker_resources"] = f"{self.workers * share} processes of one GPU each, by --split_workers"
        elif share > 1:
            self.notes["worker_resources"] = f"{share} GPUs for each process, on a node of its own; not elastic"
        elif share == 0:
            self.notes["worker_resources"] = "no GPU: YARN runs it as it comes, and no share is counted"
        if not elastic:
            return self.workers * share
        low, high = wanted.whole("min_workers", 1, 1), wanted.whole("max_workers", self.workers, 1)
        if not low <= self.workers <= high:
            given = wanted.get("min_workers") if low > self.workers else wanted.get("max_workers")
            assert given is not None
            raise given.bad(f"--num_workers {self.workers} is outside {low} to {high}", "widen the range")
        return {"requested": self.workers * share, "min": low * share, "max": high * share}

    def _extra(self, env: dict[str, str]) -> dict[str, str]:
        wanted = self.wanted
        image = wanted.text("docker_image")
        own = wanted.text("worker_docker_image")
        docker = image is not None or own is not None
        settings = values.conf(wanted.all("conf"), self.strict)
        wanted.idle += [("--conf", "", f"no effect: {text}") for text in settings.idle]
        items = self.local.items(docker, settings.resources)
        queue = wanted.get("queue")
        if queue is not None and settings.queue not in (None, queue.value):
            raise queue.bad(f"--conf tony.yarn.queue says {settings.queue}", "keep one of them")
        principal, keytab = self.local.kerberos()
        whole = service.service(image, docker, items, env, principal, keytab)
        return service.extra(
            queue.value if queue else settings.queue, whole, service.worker(own, self.resources.others)
        )

    def _lines(self) -> tuple[Line, ...]:
        lines = []
        for item in self.wanted:
            option = item.option
            fate = Fate.NOTHING if self.notes.get(option.name, "").startswith("no effect") else option.fate
            fate = Fate.TAKEN if fate is Fate.CONDITION else fate
            lines.append(Line(item.field, item.value, fate, self.notes.get(option.name, option.text)))
        return (*lines, *(_said(place, value, why) for place, value, why in self.wanted.idle))


def _said(place: str, value: str, why: str) -> Line:
    word, _, text = why.partition(": ")
    return Line(
        place, value, Fate.CHANGED if word == Fate.CHANGED else Fate.NOTHING, text if word == Fate.CHANGED else why
    )
