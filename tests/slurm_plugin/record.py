"""Record what real daemons answer, for the reading tests: `python tests/slurm_plugin/record.py [RELEASE ...]`.

For each release a mini-cluster of containers is brought up, jobs are brought into every state that reading tells
apart, and the same moment is read by the commands and by every version of slurmrestd's interface that is served.
Answers are kept as they came, but for keys of the REST bodies that no reader looks at (most of their size).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from horae.lab import LabRequest
from horae.port import JobState, ObservedJob, attend
from slurm_plugin import connect
from slurm_plugin.clients import versions
from slurm_plugin.clients.command_reading import JOB_FIELDS, NODE_FIELDS
from slurm_plugin.clients.sealed import PLAIN
from slurm_plugin.lab.containers import ContainerSlurm
from slurm_plugin.lab.settings import SUITES

FOLDER = Path(__file__).parent / "recorded"
_SCRIPT = "#!/bin/bash\ntrap 'exit 86' USR1\nwhile :; do sleep 0.05; done\n"
_JOB_KEYS = frozenset(
    """job_id array_job_id array_task_id array_task_string job_state state_reason state_description restart_cnt priority
    hold nodes tres_per_node tres_per_job node_count cpus tres_alloc_str tres_req_str comment admin_comment user_name
    user_id account qos partition name current_working_directory command standard_output dependency submit_time
    eligible_time start_time end_time preempt_time time_limit exit_code features required_nodes requeue""".split()
)
_NODE_KEYS = frozenset(
    """name gres gres_used state state_flags cpus alloc_cpus alloc_idle_cpus idle_cpus real_memory alloc_memory
    features active_features partitions slurmd_start_time""".split()
)


class Recorder:
    def __init__(self, lab: ContainerSlurm, release: str) -> None:
        self.lab, self.folder = lab, FOLDER / release
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = connect(lab.facts())
        self.port.claim("recorder")
        self.port.heartbeat()

    def submit(self, name: str, *options: str, script: str = _SCRIPT) -> str:
        common = ["--partition=dl", "--gres=gpu:1", "--comment=horae:min=1,max=8", "--output=out-%j.txt"]
        return self.lab.submit(script, {}, [*common, f"--job-name={name}", *options])

    def seen(self, number: str) -> ObservedJob:
        return {job.id.split(".")[0]: job for job in attend(self.port).jobs}[number]

    def start(self, number: str, allocation: Mapping[str, int]) -> None:
        self.port.start(self.seen(number).id, allocation, 1)

    def wait(self, number: str, *states: JobState) -> None:
        _until(f"{number} {states}", lambda: self.seen(number).state in states)

    def jobs(self) -> None:
        """Jobs in every state that reading tells apart."""
        running = self.submit("running", "--time=2:00:00")
        array = self.submit("array", "--array=1-6:1%2")
        exited, done = self.submit("exited"), self.submit("done", script="#!/bin/bash\nexit 0\n")
        failed, killed = (
            self.submit("failed", script="#!/bin/bash\nexit 7\n"),
            self.submit("killed", script="#!/bin/bash\nkill -9 $$\n"),
        )
        self.submit("held, 'quoted' \"é\"", "--nodes=2", "--gres=gpu:v100:2", "--mem-per-gpu=1000", "--time=90")
        self.submit("dependent", f"--dependency=afterany:{running}")
        cancelled, blocked = self.submit("cancelled"), self.submit("blocked")
        self.start(running, {"n1": 2, "n2": 2})
        for number in (exited, f"{array}_2"):
            self.start(number, {"n3": 1})
        for number in (done, failed, killed):
            self.start(number, {"n4": 1})
        for number in (running, exited, f"{array}_2"):
            self.wait(number, JobState.RUNNING)
        time.sleep(3)  # a start younger than two seconds may have no trap yet, and is not signalled
        self.port.checkpoint_and_stop(self.seen(exited).id, 20)
        self.wait(exited, JobState.STOPPED)
        for number in (done, failed, killed):
            self.wait(number, JobState.COMPLETED, JobState.FAILED, JobState.LOST)
        self.port.cancel(self.seen(cancelled).id)
        self.wait(cancelled, JobState.CANCELLED)
        self.lab.must("ctl", ["scontrol", "update", "nodename=n4", "state=drain", "reason=recorded"])
        self.start(blocked, {"n1": 4})
        self.lab.must("ctl", ["scontrol", "update", f"jobid={running}", "comment=horae:min=1,max=8 edited"])
        shown = ["squeue", "-h", "-j", blocked, "-o", "%r"]
        _until("slurmctld says why", lambda: self.lab.must("ctl", shown) not in {"None", ""})
        time.sleep(2)  # completing jobs complete

    def commands(self) -> None:
        time_format = {"SLURM_TIME_FORMAT": "%s"}
        for name, argv in {
            "squeue": ["squeue", "-a", "-r", "-t", "all", "-p", "dl", "-O", PLAIN.format(JOB_FIELDS)],
            "sinfo": ["sinfo", "-N", "-p", "dl", "-O", PLAIN.format(NODE_FIELDS)],
            "config": ["scontrol", "show", "config"],
        }.items():
            code, text = self.lab.exec("ctl", argv, "horae", **time_format)
            assert code == 0, text
            (self.folder / f"{name}.txt").write_text(text)

    def rest(self) -> None:
        token = self.lab.must("ctl", ["scontrol", "token", "username=horae", "lifespan=600"]).split("=", 1)[1]
        headers = {"X-SLURM-USER-NAME": "horae", "X-SLURM-USER-TOKEN": token}
        http = httpx.Client(base_url=f"http://{self.lab.address('rest')}:6820/slurm", headers=headers, timeout=30)
        for version in versions.REST:
            end = "" if version == "v0.0.38" else "/"
            ping = http.get(f"/{version}/ping{end}")
            if ping.status_code == 404:
                continue
            body = {"now_s": time.time(), "ping": ping.json()}
            jobs, nodes = http.get(f"/{version}/jobs{end}").json(), http.get(f"/{version}/nodes{end}").json()
            body["jobs"] = {**jobs, "jobs": [_kept(job, _JOB_KEYS) for job in jobs["jobs"]]}
            body["nodes"] = {**nodes, "nodes": [_kept(node, _NODE_KEYS) for node in nodes["nodes"]]}
            unknown = http.post(f"/{version}/job/99999", json={"hold": True})
            body["unknown_job"] = {"status": unknown.status_code, "body": unknown.json()}
            stranger = http.get(f"/{version}/jobs{end}", headers={"X-SLURM-USER-TOKEN": "not.a.token"})
            body["bad_token"] = {"status": stranger.status_code, "body": _json(stranger)}
            text = json.dumps(body, indent=None, separators=(",", ":"), ensure_ascii=False)
            (self.folder / f"rest-{version}.json").write_text(text + "\n")


def _kept(record: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key in keys}


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _until(what: str, holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def main(releases: list[str]) -> int:
    for release in releases or list(SUITES):
        name = "record-" + release.replace(".", "")
        with tempfile.TemporaryDirectory() as folder:
            lab = ContainerSlurm(name, Path(folder) / "lab", lambda text: print(text, file=sys.stderr))
            lab.up(LabRequest(name=name, release=release, nodes=4))
            try:
                recorder = Recorder(lab, release)
                recorder.jobs()
                recorder.commands()
                recorder.rest()
                print(f"{release}: {', '.join(path.name for path in sorted(recorder.folder.iterdir()))}")
            finally:
                lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
