"""Record the answers that the tests of the YARN clients replay, from a running cluster.

    python -m tests.yarn_bridge.record --rm http://rm:8088 --user alice --queue default --out 3.4.2.jsonl

It creates one small service of the user's in the queue, flexes, stops, starts and destroys it, and sends the
requests that a ResourceManager refuses. Nothing else of the cluster is changed. Every line is one request and its
answer as it came; tokens and signatures are blanked. The cluster must believe `user.name` (simple authentication).
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

RM, SERVICES = "/ws/v1/cluster", "/app/v1/services"
NAME = "horae-rec"
_SECRET = re.compile(r'("token"\s*:\s*|"urlString"\s*:\s*)"[^"]+"|(delegation=)[^&"]+|(s=)[A-Za-z0-9+/=]{20,}')
_KEPT = ("Content-Type", "Location", "WWW-Authenticate")


class Recorder:
    def __init__(self, base: str, user: str) -> None:
        self.base, self.user = base.rstrip("/"), user
        self.pairs: list[dict[str, Any]] = []

    def __call__(self, name: str, method: str, path: str, body: Any = None, user: str | None = "") -> Any:
        """Ask, keep the pair, give the parsed answer. `user` None: nobody."""
        who = self.user if user == "" else user
        xml = isinstance(body, str)
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/xml" if xml else "application/json"
        answer = requests.request(
            method,
            self.base + path,
            params={"user.name": who} if who else {},
            data=body if xml or body is None else json.dumps(body),
            headers=headers,
            timeout=60,
            allow_redirects=False,
        )
        try:
            found = json.loads(_blank(answer.text)) if answer.text.strip() else None
        except ValueError:
            found = _blank(answer.text)
        self.pairs.append(
            {
                "name": f"{len(self.pairs) + 1:03d}-{name}",
                "request": {
                    "method": method,
                    "path": path,
                    "user": who,
                    "content_type": headers.get("Content-Type"),
                    "body": body,
                },
                "status": answer.status_code,
                "headers": {key: _blank(answer.headers[key]) for key in _KEPT if key in answer.headers},
                "response": found,
            }
        )
        print(f"{answer.status_code} {method} {path}")
        return found

    def until(self, path: str, holds: Callable[[Any], bool], wait_s: float = 120.0) -> None:
        """Ask without recording until the answer is so."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            found = requests.get(self.base + path, params={"user.name": self.user}, timeout=60)
            if found.ok and holds(found.json()):
                return
            time.sleep(0.3)
        raise SystemExit(f"{path} did not become what was waited for within {wait_s:g} s")


def reads(ask: Recorder) -> None:
    for name in ("info", "metrics", "nodes", "scheduler", "get-node-labels", "get-node-to-labels"):
        ask(name, "GET", f"{RM}/{name}")
    ask("sched-conf-get", "GET", f"{RM}/scheduler-conf")
    ask("sched-conf-version", "GET", f"{RM}/scheduler-conf/version")
    ask("apps-empty-filter", "GET", f"{RM}/apps?states=NEW_SAVING")
    ask("svc-version", "GET", f"{SERVICES}/version")


def refusals(ask: Recorder) -> None:
    ask("app-404", "GET", f"{RM}/apps/application_1_0001")
    ask("svc-404", "GET", f"{SERVICES}/none")
    ask("svc-destroy-none", "DELETE", f"{SERVICES}/none")
    ask("nobody-info", "GET", f"{RM}/info", user=None)
    ask("nobody-svc", "GET", f"{SERVICES}/none", user=None)
    ask("delegation-token", "POST", f"{RM}/delegation-token", {"renewer": ask.user})
    ask("signal-nope", "POST", f"{RM}/containers/container_1_0001_01_000001/signal/NOPE")
    ask("html", "GET", "/no/such/page")


def service(ask: Recorder, queue: str) -> None:
    path = f"{SERVICES}/{NAME}"
    worker = {
        "name": "worker",
        "number_of_containers": 1,
        "restart_policy": "ON_FAILURE",
        "launch_command": "exec sleep 3600",
        "resource": {"cpus": 1, "memory": "128", "additional": {"yarn.io/gpu": {"value": 1, "unit": ""}}},
    }
    spec = {"name": NAME, "version": "1.0", "queue": queue, "lifetime": 3600, "components": [worker],
            "configuration": {"properties": {"yarn.service.readiness-check-interval.seconds": "1",
                                             "yarn.service.container-failure.retry.max": "0"}}}  # fmt: skip
    ask("svc-create", "POST", SERVICES, spec)
    ask("svc-create-dup", "POST", SERVICES, spec)
    ask("svc-accepted", "GET", path)
    flex = {"state": "FLEX", "components": [{"name": "worker", "number_of_containers": 2}]}
    ask("svc-flex-too-early", "PUT", path, flex)
    ask.until(path, lambda found: found["state"] in {"STARTED", "STABLE"} and bool(found["components"]))
    ask("svc-started", "GET", path)
    # The refused flex was stored. The same count again would make the application master lose the workers it starts.
    more = {"state": "FLEX", "components": [{"name": "worker", "number_of_containers": 3}]}
    ask("svc-flex", "PUT", path, more)
    ask.until(path, lambda found: _workers(found) == 3)
    running = ask("svc-running", "GET", path)
    application = running["id"]
    ask("svc-app", "GET", f"{RM}/apps/{application}")
    attempt = ask("svc-attempts", "GET", f"{RM}/apps/{application}/appattempts")["appAttempts"]["appAttempt"][0]
    ask("svc-containers", "GET", f"{RM}/apps/{application}/appattempts/{attempt['appAttemptId']}/containers")
    ask("svc-flex-unknown", "PUT", path, {"state": "FLEX", "components": [{"name": "no", "number_of_containers": 1}]})
    ask("svc-flex-negative", "PUT", f"{path}/components/worker", {"number_of_containers": -1})
    ask("queue-bad", "PUT", f"{RM}/apps/{application}/queue", {"queue": "no-such-queue"})
    ask("svc-other-user", "GET", path, user="nobody")
    ask("svc-stop", "PUT", path, {"state": "STOPPED"})
    ask("svc-start-too-early", "PUT", path, {"state": "STARTED"})
    ask.until(path, lambda found: found["state"] == "STOPPED")
    ask("svc-stopped", "GET", path)
    ask("svc-destroy", "DELETE", path)


def _workers(found: dict[str, Any]) -> int:
    return sum(len(component.get("containers") or []) for component in found["components"])


def _blank(text: str) -> str:
    return _SECRET.sub(lambda match: next(each for each in match.groups() if each) + '"<token>"', text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rm", required=True, help="address of the ResourceManager's web server")
    parser.add_argument("--user", required=True, help="who asks; needs a home in HDFS and rights on the queue")
    parser.add_argument("--queue", default="default")
    parser.add_argument("--reads", action="store_true", help="only requests that change nothing")
    parser.add_argument("--out", type=Path, required=True)
    said = parser.parse_args()
    ask = Recorder(said.rm, said.user)
    try:
        reads(ask)
        refusals(ask)
        if not said.reads:
            service(ask, said.queue)
    finally:
        requests.delete(f"{ask.base}{SERVICES}/{NAME}", params={"user.name": ask.user}, timeout=60)
        lines = [json.dumps(pair, separators=(",", ":"), ensure_ascii=False) for pair in ask.pairs]
        said.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
