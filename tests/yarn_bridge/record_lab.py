"""Record answers that only a cluster of one's own can be made to give: a private Hadoop's, on its bad days.

    python -m tests.yarn_bridge.record_lab --out tests/yarn_bridge/fixtures/3.4.2-lab.jsonl

Extended attributes of HDFS, allowed, too big and forbidden; single settings of NameNode and DataNode; and a
ResourceManager that keeps its state in ZooKeeper while ZooKeeper is away.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import requests

from horae.lab import LabRequest, default_folder
from tests.contract.waiting import wait_for
from tests.yarn_bridge.record import RM, SERVICES, Recorder
from yarn_bridge.lab import settings
from yarn_bridge.lab.private import PrivateHadoop

USER = "horae"
FOLDER = f"/webhdfs/v1/user/{USER}/attributes"
XATTRS, FILE_END = "dfs.namenode.xattrs.enabled", "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"
STORE = {
    "yarn.resourcemanager.store.class":
        "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore",
    "hadoop.zk.timeout-ms": "4000",
}  # fmt: skip


def attributes(lab: PrivateHadoop, ask: Recorder) -> None:
    ask("conf-one", "GET", "/conf?name=dfs.namenode.fs-limits.max-xattr-size&format=json")
    ask("conf-unknown", "GET", "/conf?name=no.such.setting&format=json")
    ask("conf-nobody", "GET", "/conf?name=dfs.namenode.xattrs.enabled&format=json", user=None)
    ask("mkdirs", "PUT", f"{FOLDER}?op=MKDIRS")
    value = "&flag=CREATE&xattr.name=user.horae."
    ask("setxattr", "PUT", f"{FOLDER}?op=SETXATTR{value}0&xattr.value=0saGk=")
    ask("getxattrs", "GET", f"{FOLDER}?op=GETXATTRS&encoding=base64")
    ask("getxattrs-none", "GET", f"{FOLDER}?op=GETXATTRS&xattr.name=user.none&encoding=base64")
    ask("setxattr-big", "PUT", f"{FOLDER}?op=SETXATTR{value}1&xattr.value=0x{'00' * 17000}")
    ask("create-noredirect", "PUT", f"{FOLDER}/file?op=CREATE&noredirect=true")
    site = lab.folder / "etc/master/hdfs-site.xml"
    off = f"<property><name>{XATTRS}</name><value>false</value></property></configuration>"
    site.write_text(site.read_text().replace("</configuration>", off))
    lab.kill("namenode")
    lab.start("namenode")
    lab.wait_hdfs()
    ask("setxattr-off", "PUT", f"{FOLDER}?op=SETXATTR{value}0&xattr.value=0saGk=")
    ask("getxattrs-off", "GET", f"{FOLDER}?op=GETXATTRS&encoding=base64")


def away(lab: PrivateHadoop, ask: Recorder) -> None:
    """Its ZooKeeper is away: first under a running ResourceManager, then at its start."""
    lab.kill("zookeeper")
    app = ask("new-application", "POST", f"{RM}/apps/new-application")["application-id"]
    master = {"commands": {"command": "sleep 1"}}
    ask(
        "submit",
        "POST",
        f"{RM}/apps",
        {"application-id": app, "application-name": "plain", "am-container-spec": master},
    )
    ask("apps-unsaved", "GET", f"{RM}/apps?states=NEW_SAVING")
    lab.kill("resourcemanager")
    lab.start("resourcemanager")
    wait_for("it answers", lambda: answers(ask), 120.0)
    for name in ("info", "nodes", "apps"):
        ask(f"inactive-{name}", "GET", f"{RM}/{name}")
    ask("inactive-app", "GET", f"{RM}/apps/{app}")
    ask("inactive-svc", "GET", f"{SERVICES}/none")


def answers(ask: Recorder) -> bool:
    try:
        return requests.get(f"{ask.base}{RM}/info", params={"user.name": USER}, timeout=5).ok
    except requests.RequestException:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="horae-record-") as folder:
        lab = PrivateHadoop(Path(folder) / "hadoop", default_folder() / "hadoop")
        try:
            lab.up(LabRequest(name="record", nodes=1, gpus=(("v100", 1),), options=STORE))
            facts, master = lab.facts(), lab.master
            namenode = Recorder(facts["webhdfs"], USER)
            datanode = Recorder(f"http://{lab.master}:{settings.DN_PORT}", USER)
            manager = Recorder(facts["resource_manager"][0], USER)
            attributes(lab, namenode)
            datanode("dn-conf-one", "GET", f"/conf?name={FILE_END}&format=json")
            away(lab, manager)
        finally:
            lab.down()
    pairs = [*namenode.pairs, *datanode.pairs, *manager.pairs]
    text = "\n".join(json.dumps(each) for each in pairs) + "\n"
    options.out.write_text(text.replace(master, "lab").replace("00" * 17000, "..."))
    print(f"{len(pairs)} pairs in {options.out}")


if __name__ == "__main__":
    main()
