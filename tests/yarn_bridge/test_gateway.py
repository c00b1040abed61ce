"""Behind a gateway with paths of its own, as Knox has them: what is asked for where, and who is told who we are."""

from __future__ import annotations

import pytest

from horae.spec import JobSpec
from policy.model import GpuRange
from tests.yarn_bridge.fake import Asked, Reply, serving
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.jobs import shapes
from yarn_bridge.options import parse_options

AT = "/gateway/default"


class Gateway:
    """Its own paths before the daemons'; WebHDFS's redirects lead back to it, and are nobody's without a name."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.url = ""

    def __call__(self, asked: Asked) -> Reply:
        if asked.query.get("user.name") != "horae" or asked.query.get("doAs", asked.query.get("doas", "x")) == "":
            return Reply(401, "who?")
        path = asked.path.removeprefix(AT)
        if path == "/resourcemanager/v1/cluster/info":
            return Reply(
                200, {"clusterInfo": {"resourceManagerVersion": "3.4.2", "haState": "ACTIVE", "state": "STARTED"}}
            )
        name = path.removeprefix("/webhdfs/data/v1").removeprefix("/webhdfs/v1")
        operation = asked.query["op"]
        if operation in {"CREATE", "OPEN"} and not path.startswith("/webhdfs/data"):
            words = "&".join(f"{key}={value}" for key, value in asked.query.items())
            return Reply(307, None, {"Location": f"{self.url}{AT}/webhdfs/data/v1{name}?{words}"})
        if operation == "CREATE":
            self.files[name] = asked.body
            return Reply(201)
        if operation == "OPEN":
            return Reply(200, self.files[name])
        if operation == "RENAME":
            self.files[asked.query["destination"]] = self.files.pop(name)
            return Reply(200) if "renameoptions" in asked.query else Reply(200, {"boolean": True})
        status = {
            "type": "FILE",
            "length": len(self.files[name]),
            "modificationTime": 0,
            "owner": "horae",
            "permission": "644",
        }
        return Reply(200, {"FileStatus": {"pathSuffix": "", **status}})


def test_requests_go_below_the_gateways_paths() -> None:
    gateway = Gateway()
    with serving(gateway) as fake:
        gateway.url = fake.url
        manager = ResourceManager(HttpClient(Access((f"{fake.url}{AT}/resourcemanager",), "horae"), "ResourceManager"))
        assert manager.info().version == "3.4.2"
        manager.close()
        hdfs = Hdfs(Access((f"{fake.url}{AT}/",), "horae"))
        hdfs.write("/user/alice/x", b"through the gateway")
        assert hdfs.read("/user/alice/x") == b"through the gateway"
    assert all(asked.path.startswith(AT) for asked in fake.asked)
    assert {asked.query["user.name"] for asked in fake.asked} == {"horae"}, "its redirects want a name, too"


@pytest.mark.parametrize(
    ("webhdfs", "gate"),
    [
        ("https://knox:8443/gateway/default", "hdfs://knox:8443/user/horae/horae/jobs/j"),
        ("http://nn1:9870", "webhdfs://nn1:9870/user/horae/horae/jobs/j"),
    ],
)
def test_workers_are_told_the_whole_address(webhdfs: str, gate: str) -> None:
    options = parse_options({"resource_manager": "http://rm1:8088", "webhdfs": webhdfs})
    spec = JobSpec("j", ("python3", "t.py"), GpuRange(1, 1, 1))
    script = shapes.launch_script("j", spec, options, "/user/horae/horae/jobs/j")
    assert f"export HORAE_WEBHDFS={webhdfs}\n" in script
    assert f"--gate {gate} " in script
