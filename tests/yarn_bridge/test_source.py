"""Logs of any YARN application, as `horae profile` reads them: fakes at the process boundary, recorded files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from horae.cli import main
from horae.port import FixConfiguration, TryLater
from policy.model import BadInput
from tests.yarn_bridge.aggregated import FIXTURES, LOG, recorded
from tests.yarn_bridge.fake import Asked, Fake, Reply, serving
from tests.yarn_bridge.fake_hdfs import World, refused
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.logs.source import YarnLogs, _access, _files, _living, open_logs, parse
from yarn_bridge.options import parse_options

APP = "application_1795311234093_0001"
_CONTAINER = re.compile(rb"container_\d+_\d+_\d+_\d+")


class Cluster:
    """A ResourceManager, a NodeManager `n1`, and an HDFS, each a web server of this process."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.hdfs = World(stack)
        self.folders("/tmp/logs/alice")
        self.manager: Fake = stack.enter_context(serving(self._manager))
        self.node: Fake = stack.enter_context(serving(self._node))
        self.state, self.finished_s, self.known, self.aggregation = "FINISHED", 1.0, True, "SUCCEEDED"
        self.conf = {"yarn.log-aggregation-enable": "true", "yarn.nodemanager.remote-app-log-dir": "/tmp/logs"}
        self.containers = ["container_1795311234093_0001_01_000001", "container_1795311234093_0001_01_000002"]
        self.files: dict[str, bytes] = {"stdout": LOG, "stderr": b"no news\n", "prelaunch.out": b"x"}
        self.web = f"n1:{urlsplit(self.node.url).port}"
        self.where = f"http://{self.web}"
        self.config = folder / "horae.yaml"
        self.config.write_text(json.dumps({"cluster": {"adapter": "yarn", "options": self.options}}))

    @property
    def options(self) -> dict[str, Any]:
        names = {"datanode.invalid": "127.0.0.1", "n1": "127.0.0.1"}
        return {"resource_manager": self.manager.url, "webhdfs": self.hdfs.namenode.url, "hdfs_names": names}

    def logs(self) -> YarnLogs:
        return open_logs(self.options)

    def read(self, what: str) -> dict[str, bytes]:
        source = self.logs()
        return {each.name: b"".join(each.pieces) for each in source.logs(what)}

    def folders(self, path: str) -> None:
        self.hdfs.mkdirs(path, {})

    def put(self, path: str, data: bytes) -> None:
        self.folders(path.rpartition("/")[0])
        self.hdfs.files[path] = data

    def _manager(self, asked: Asked) -> Reply:
        path = asked.path.removeprefix("/ws/v1/cluster")
        if path == "/nodes":
            node = {"id": "n1:8041", "nodeHostName": "n1", "state": "RUNNING", "nodeHTTPAddress": self.web}
            return Reply(body={"nodes": {"node": [node]}})
        if path == "/conf":
            return Reply(body={"properties": [{"key": key, "value": value} for key, value in self.conf.items()]})
        if not self.known or APP not in path:
            return refused(404, "NotFoundException", f"app with id: {path} not found")
        if path == f"/apps/{APP}":
            app = {"id": APP, "user": "alice", "state": self.state, "finalStatus": "UNDEFINED"}
            app |= {"finishedTime": int(self.finished_s * 1000), "logAggregationStatus": self.aggregation}
            return Reply(body={"app": app})
        if path.endswith("/appattempts"):
            found = [{"appAttemptId": f"{APP}-1", "containerId": each} for each in self.containers[:1]]
            return Reply(body={"appAttempts": {"appAttempt": found}})
        listed = [{"containerId": each, "nodeId": "n1:8041", "containerState": "RUNNING",
                   "logUrl": f"{self.where}/node/containerlogs/{each}/alice"} for each in self.containers]  # fmt: skip
        return Reply(body={"container": listed})

    def _node(self, asked: Asked) -> Reply:
        _, container, _, *file = asked.path.removeprefix("/ws/v1/node").strip("/").split("/")
        if not file:
            found = [{"fileName": name, "fileSize": str(len(text))} for name, text in self.files.items()]
            kinds = [{"containerLogInfo": found, "logAggregationType": "LOCAL"},
                     {"containerLogInfo": [{"fileName": "old"}], "logAggregationType": "AGGREGATED"}]  # fmt: skip
            return Reply(body={"containerLogsInfo": kinds})
        text = self.files[file[0]]
        head = f"Container: {container} on n1:8041\nLogAggregationType: LOCAL\n{'=' * 60}\nLogType:{file[0]}\n"
        head += f"LogLastModifiedTime:Sun\nLogLength:{len(text)}\nLogContents:\n"
        return Reply(
            body=head.encode() + text + b"\nEnd of LogType:stdout.This log file belongs to a running container"
        )


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    monkeypatch.delenv("HORAE_CONFIG", raising=False)
    with ExitStack() as stack:
        yield Cluster(stack, tmp_path)


def container_of(name: str) -> str:
    """That the recorded file is about."""
    found = _CONTAINER.search(recorded(name) if "none" in name else recorded("3.4.2-ifile-none"))
    assert found
    return found[0].decode()


# --- names ---


def test_names() -> None:
    one = parse(APP)
    assert (one.app, one.container, one.file) == (APP, "*", "")
    assert one.takes("container_x", "stdout")
    assert not any(one.takes("container_x", each) for each in ("prelaunch.out", "directory.info", "serviceam-out.txt"))
    two = parse(f"{APP}/*_000002/std*")
    assert two.takes("container_1_1_01_000002", "stdout")
    assert not two.takes("container_1_1_01_000003", "stdout")
    assert not two.takes("container_1_1_01_000002", "syslog")
    three = parse("container_e17_1410901177871_0001_01_000005/prelaunch.out")
    assert three.app == "application_1410901177871_0001"
    assert three.takes("container_e17_1410901177871_0001_01_000005", "prelaunch.out")


@pytest.mark.parametrize("what", ["", "job_1_1", f"{APP}/a/b/c", "container_1_1_01_000002/a/b", "application_x_1"])
def test_names_that_mean_nothing(what: str) -> None:
    with pytest.raises(BadInput, match="names no application") as told:
        parse(what)
    assert "yarn:APPLICATION/CONTAINER/FILE" in told.value.remedy


# --- after the end ---


@pytest.mark.parametrize("file", ["3.3.6-tfile-none", "3.4.2-tfile-gz", "3.4.2-ifile-none", "3.4.2-ifile-gz"])
@pytest.mark.parametrize("layout", [f"bucket-logs-tfile/0001/{APP}", f"bucket-logs-ifile/0001/{APP}", f"logs/{APP}"])
def test_aggregated_logs_of_every_layout_and_format(cluster: Cluster, file: str, layout: str) -> None:
    cluster.put(f"/tmp/logs/alice/{layout}/n1_8041", recorded(file))
    found = cluster.read(APP)
    assert sorted(found.values()) == sorted([b"a warning of the trainer's\n", LOG])
    assert {each.query["user.name"] for each in cluster.hdfs.namenode.asked} == {"alice"}


def test_folders_of_the_clusters_own_choice(cluster: Cluster) -> None:
    cluster.conf |= {"yarn.log-aggregation.TFile.remote-app-log-dir": "hdfs://nn:9000/var/aggregated/"}
    cluster.put(f"/var/aggregated/alice/bucket-logs/0001/{APP}/n1_8041", recorded("3.4.2-tfile-none"))
    assert LOG in cluster.read(APP).values()


def test_the_parts_of_a_rolled_log_are_one_log(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """A long application's logs come in several files a node: read in the order they were written."""
    folder = f"/tmp/logs/alice/bucket-logs-tfile/0001/{APP}"
    for time_ms in ("1795311234100", "1795311234200"):
        cluster.put(f"{folder}/n1_8041_{time_ms}", recorded("3.4.2-tfile-none"))
    assert main(["profile", f"yarn:{APP}/*/stdout", "--json", "--config", str(cluster.config)]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["bytes"] == 2 * len(LOG)
    assert body["lines"] == 40


def test_a_damaged_part_does_not_hide_the_others(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    folder = f"/tmp/logs/alice/bucket-logs-tfile/0001/{APP}"
    cluster.put(f"{folder}/n1_8041", recorded("3.4.2-tfile-none"))
    cluster.put(f"{folder}/n2_8041", recorded("3.4.2-tfile-none")[:-20])
    cluster.put(f"{folder}/n3_8041.tmp", b"")
    assert main(["profile", f"yarn:{APP}", "--json", "--config", str(cluster.config)]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["runs"][0]["iterations"]["last"] == 20
    said = "\n".join(body["warnings"])
    assert re.search(r"n2_8041: byte \d+: the end is missing", said)
    assert "n3_8041.tmp is still being written" in said


@pytest.mark.parametrize(
    ("status", "ago_s", "said"),
    [("RUNNING", 5.0, "may still be putting"), ("NOT_START", 5.0, "may still be putting"), ("FAILED", 1e6, "failed to"),
     ("NOT_START", 1e6, ""), ("SUCCEEDED", 5.0, "")],
)  # fmt: skip
def test_logs_that_may_not_be_all_are_said_to_be_so(cluster: Cluster, status: str, ago_s: float, said: str) -> None:
    """A node's file that is not there yet leaves no trace in HDFS: the ResourceManager knows."""
    cluster.aggregation, cluster.finished_s = status, time.time() - ago_s
    cluster.put(f"/tmp/logs/alice/bucket-logs-tfile/0001/{APP}/n1_8041", recorded("3.4.2-tfile-none"))
    source = cluster.logs()
    assert [b"".join(each.pieces) for each in source.logs(APP)]
    assert ([said in each for each in source.troubles] == [True]) if said else source.troubles == []


def test_a_file_of_no_length_is_being_written(cluster: Cluster) -> None:
    """The indexed format is written under its final name."""
    cluster.put(f"/tmp/logs/alice/bucket-logs-ifile/0001/{APP}/n1_8041", b"")
    with pytest.raises(TryLater, match="not all in HDFS yet"):
        cluster.read(APP)


def test_damage_alone_is_an_error_in_words(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    folder = f"/tmp/logs/alice/bucket-logs-tfile/0001/{APP}"
    cluster.put(f"{folder}/n1_8041", recorded("3.4.2-tfile-none")[:100])
    assert main(["profile", f"yarn:{APP}", "--config", str(cluster.config)]) == 3
    said = capsys.readouterr().err
    assert f"{folder}/n1_8041: byte 84: the end is missing" in said
    assert "yarn logs -applicationId" in said


def test_an_application_that_the_manager_has_forgotten_is_found_by_its_folder(cluster: Cluster) -> None:
    cluster.known = False
    cluster.put(f"/tmp/logs/bob/bucket-logs-tfile/0001/{APP}/n1_8041", recorded("3.4.2-tfile-none"))
    assert LOG in cluster.read(APP).values()
    with pytest.raises(BadInput, match="does not know application_1_0007, and there are no logs of it in /tmp/logs"):
        cluster.read("application_1_0007")


def test_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of the command; the bridge only for who may read its keytab."""
    monkeypatch.setenv("HADOOP_USER_NAME", "bob")
    told = {"resource_manager": "http://rm:8088", "webhdfs": "http://nn:9870", "user": "horae", "doas": True}
    simple = _access(parse_options(told))
    assert (simple.user, simple.doas) == ("bob", False)
    told |= {"auth": "kerberos", "principal": "horae/rm", "keytab": str(tmp_path / "horae.keytab")}
    ticket = _access(parse_options(told))
    assert (ticket.user, ticket.principal, ticket.keytab, ticket.doas) == ("", "", "", False)
    (tmp_path / "horae.keytab").write_bytes(b"")
    bridge = _access(parse_options(told))
    assert (bridge.user, bridge.principal, bridge.doas) == ("horae", "horae/rm", True)


def test_why_there_are_none(cluster: Cluster) -> None:
    with pytest.raises(BadInput, match=f"no logs of {APP} in /tmp/logs/alice"):
        cluster.read(APP)
    cluster.finished_s = time.time()
    with pytest.raises(TryLater, match="not all in HDFS yet"):
        cluster.read(APP)
    cluster.conf["yarn.log-aggregation-enable"] = "false"
    with pytest.raises(FixConfiguration, match="does not aggregate logs") as told:
        cluster.read(APP)
    assert "yarn.log-aggregation-enable=true" in told.value.remedy


def test_somebody_elses_logs(cluster: Cluster) -> None:
    said = 'Permission denied: user=bob, access=READ_EXECUTE, inode="/tmp/logs/alice"'
    cluster.hdfs.fault = lambda operation: refused(403, "AccessControlException", said)
    with pytest.raises(FixConfiguration, match="ask as alice") as told:
        cluster.read(APP)
    assert told.value.text.count("(ask as") == 1
    assert "HADOOP_USER_NAME=alice" in told.value.remedy


def test_a_file_that_is_not_there_says_what_is(cluster: Cluster) -> None:
    cluster.put(f"/tmp/logs/alice/bucket-logs-tfile/0001/{APP}/n1_8041", recorded("3.4.2-tfile-none"))
    with pytest.raises(BadInput, match="has no log that matches") as told:
        cluster.read(f"{APP}/*/syslog")
    assert f"{container_of('3.4.2-tfile-none')}/stdout" in told.value.remedy


# --- while it runs ---


def test_logs_of_living_containers(cluster: Cluster) -> None:
    cluster.state = "RUNNING"
    found = cluster.read(APP)
    assert found == {f"yarn:{c}/{f}": cluster.files[f] for c in cluster.containers for f in ("stdout", "stderr")}
    assert {each.query["user.name"] for each in cluster.node.asked} == {"alice"}


def test_what_the_nodemanager_said_is_read_as_recorded() -> None:
    """Of both releases: the words before and behind the log are the NodeManager's, the length is the log's."""
    for release in ("3.3.6", "3.4.2"):
        listing, _, answer = (FIXTURES / f"{release}-living").read_bytes().partition(b"\n")
        names = [each["fileName"] for each in _info(json.loads(listing))]
        assert {"stdout", "stderr", "launch_container.sh"} <= set(names)

        def answers(asked: Asked, listing: bytes = listing, answer: bytes = answer) -> Reply:
            return Reply(body=answer if asked.path.endswith("/stdout") else listing)

        found = _node_says(answers)
        assert LOG.startswith(found)
        assert found.endswith(b"s/it\n") and found.count(b"\n") >= 3


def _info(listing: Any) -> list[dict[str, str]]:
    found = listing["containerLogsInfo"]
    return [file for part in (found if isinstance(found, list) else [found]) for file in part["containerLogInfo"]]


def _node_says(answers: Callable[[Asked], Reply]) -> bytes:
    with serving(answers) as fake:
        node = HttpClient(Access((fake.url,), "alice"), "NodeManager n1")
        assert "stdout" in _files(node, "container_1", "")
        return b"".join(_living(node, "container_1", "stdout", ""))


def test_a_node_that_does_not_answer(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.state = "RUNNING"
    cluster.node.close()
    assert main(["profile", f"yarn:{APP}", "--config", str(cluster.config)]) == 6
    said = capsys.readouterr().err
    assert "container_1795311234093_0001_01_000002 is not read: no NodeManager n1:8041 answers" in said
    assert "connection refused" in said


def test_a_node_whose_name_means_nothing_here(cluster: Cluster) -> None:
    cluster.state, cluster.where = "RUNNING", "http://nosuchnode.invalid:8042"
    cluster.web = "nosuchnode.invalid:8042"
    with pytest.raises(FixConfiguration, match="nosuchnode") as told:
        cluster.read(f"{cluster.containers[1]}/stdout")
    assert "hdfs_names" in told.value.remedy


@pytest.mark.parametrize("how", ["host", "port", "user", "scheme", "metadata", "unlisted"])
def test_logs_are_read_of_listed_nodes_alone(cluster: Cluster, how: str) -> None:
    """What is told of a container, its owner may have said: nobody else is asked, and told no ticket, token or name."""
    cluster.state = "RUNNING"
    with serving(lambda asked: Reply(body={})) as stranger:
        port = urlsplit(stranger.url).port
        cluster.where = {
            "host": f"http://127.0.0.1:{port}", "port": f"http://n1:{port}",
            "user": f"http://{cluster.web}@127.0.0.1:{port}", "scheme": f"gopher://127.0.0.1:{port}",
            "metadata": "http://169.254.169.254/latest", "unlisted": cluster.where,
        }[how]  # fmt: skip
        cluster.web = "" if how == "unlisted" else cluster.web
        with pytest.raises(TryLater, match=r"nobody was asked|does not say where"):
            cluster.read(f"{APP}/*/stdout")
        assert stranger.asked == []
    assert cluster.node.asked == []


def test_an_application_that_waits(cluster: Cluster) -> None:
    cluster.state, cluster.containers = "ACCEPTED", []
    with pytest.raises(TryLater, match="is ACCEPTED and has no container yet"):
        list(cluster.logs().logs(APP))


# --- as a user meets it ---


def test_profile_is_that_of_the_same_text_in_a_file(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.put(f"/tmp/logs/alice/bucket-logs-tfile/0001/{APP}/n1_8041", recorded("3.4.2-tfile-gz"))
    file = tmp_path / "train.log"
    file.write_bytes(LOG)
    assert main(["profile", "--json", "--points", str(file)]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert main(["profile", "--json", "--points", f"yarn:{APP}", "--config", str(cluster.config)]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found.pop("file") == f"yarn:{container_of('3.4.2-tfile-gz')}/stdout" or found
    wanted.pop("file")
    assert found == wanted
    assert "1 more logs, which tell nothing of training" in told.err


def test_files_and_applications_together(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.state = "RUNNING"
    file = tmp_path / "train.log"
    file.write_bytes(LOG)
    names = [str(file), f"yarn:{APP}", str(file)]
    assert main(["profile", "--json", *names, "--config", str(cluster.config)]) == 0
    bodies = json.loads(capsys.readouterr().out)
    # the application master's log tells of training too, and is left out for the worker's
    assert [each["file"] for each in bodies] == [str(file), f"yarn:{cluster.containers[1]}/stdout"]


def test_what_is_missing_on_the_command_line(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.joblogs.CONFIG", str(tmp_path / "none.yaml"))
    assert main(["profile", f"yarn:{APP}"]) == 3
    assert "--config or $HORAE_CONFIG" in capsys.readouterr().err
    other = tmp_path / "other.yaml"
    other.write_text("cluster: {adapter: local}\n")
    assert main(["profile", f"yarn:{APP}", "--config", str(other)]) == 3
    assert "cluster.adapter: is of a cluster of the kind local" in capsys.readouterr().err
    assert main(["profile", "--follow", f"yarn:{APP}", "--config", str(cluster.config)]) == 2
    assert "read it without --follow" in capsys.readouterr().err
    assert main(["profile", "martian:thing"]) == 3
    assert "no such file or folder" in capsys.readouterr().err
