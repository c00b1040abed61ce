"""A real HttpFS beside a private Hadoop: HDFS by one address, whose server writes for its users."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from tests.contract.waiting import wait_for
from yarn_bridge.lab import settings
from yarn_bridge.lab.private import PrivateHadoop

PORT = 14000
ARTIFACTS = ("org.apache.hadoop:hadoop-hdfs-httpfs:3.4.2", "com.googlecode.json-simple:json-simple:1.1.1")
SERVER = "org.apache.hadoop.fs.http.server.HttpFSServerWebServer"


def proxy_user(name: str) -> dict[str, str]:
    """What the NameNode must be told: HttpFS acts for its users."""
    return {f"hadoop.proxyuser.{name}.hosts": "*", f"hadoop.proxyuser.{name}.groups": "*"}


def httpfs(lab: PrivateHadoop, folder: Path) -> str:
    """Start it; its address. It ends with the lab."""
    conf = folder / "conf"
    for name in ("conf", "log", "temp"):
        (folder / name).mkdir()
    (conf / "httpfs-signature.secret").write_text("a secret of this test")
    own = {
        "httpfs.hadoop.config.dir": str(lab.folder / "etc/master"),
        "httpfs.http.hostname": lab.master,
        "httpfs.http.port": str(PORT),
    }
    (conf / "httpfs-site.xml").write_text(settings.xml(own))
    (conf / "httpfs-log4j.properties").write_text((lab.folder / "etc/master/log4j.properties").read_text())
    where = {"home": folder, "config": conf, "log": folder / "log", "temp": folder / "temp"}
    lab.program(
        "httpfs", 200, conf, ARTIFACTS, *(f"-Dhttpfs.{name}.dir={path}" for name, path in where.items()), SERVER
    )
    address = f"http://{lab.master}:{PORT}"

    def serves() -> bool:
        with suppress(OSError), urlopen(f"{address}/webhdfs/v1/?op=LISTSTATUS&user.name=horae", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    wait_for("HttpFS serves", serves, 120.0)
    return address
