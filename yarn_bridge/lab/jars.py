"""Hadoop's jars by Maven coordinates, fetched once into a cache; the framework archive that is made of them.

`main` fetches those of every release that labs know.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from policy.model import BadInput

#: release -> artifacts of org.apache.hadoop with their own version where it is not the release's
_ARTIFACTS = {
    "hadoop-common": {},
    "hadoop-hdfs": {},
    "hadoop-hdfs-client": {},
    "hadoop-yarn-client": {},
    "hadoop-yarn-server-resourcemanager": {},
    "hadoop-yarn-server-nodemanager": {},
    # "provided" in the ResourceManager's pom, so not transitive: must be named
    "hadoop-yarn-server-timelineservice": {},
    "hadoop-yarn-services-api": {"3.3.6": "3.3.5"},
    "hadoop-yarn-services-core": {},
    "hadoop-yarn-applications-distributedshell": {"3.3.6": "3.3.5"},
}
#: never loaded by the daemons of a lab
_UNUSED = (
    "mssql-jdbc,HikariCP,ehcache,cache-api,jna,jline,fst,snakeyaml,jsch,commons-net,avro,codemodel,"
    "jsonschema2pojo-core,checker-qual,animal-sniffer-annotations,j2objc-annotations,jsp-api,listenablefuture,"
    "objenesis,commons-csv,txw2"
)
_PAUSES_S = (2.0, 10.0, 30.0)
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>horae.lab</groupId><artifactId>mini-hadoop</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
  </plugin></plugins></build>
</project>
"""


def jars(cache: Path, release: str, say: Callable[[str], None]) -> Path:
    """The folder of the release's jars. Raises BadInput when they cannot be had. Safe for several processes."""
    folder = cache / f"jars-{release}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"jars-{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(cache, folder, release, say)
    return folder


def framework(folder: Path) -> bytes:
    """The archive that `yarn.service.framework.path` names: every jar, flat, as a site uploads it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as tar:
        for jar in sorted(folder.glob("*.jar")):
            tar.add(jar, jar.name)
    return made.getvalue()


def local_framework(folder: Path, there: Path | None = None) -> bytes:
    """The same where every node sees the jars: one jar that only names the others, so that nothing is copied.

    `there`: where nodes see `folder`, when not under its own name.
    """
    names = " ".join(((there or folder) / jar.name).as_uri() for jar in sorted(folder.glob("*.jar")))
    line = f"Class-Path: {names}"
    folded = [line[:72], *(f" {line[at : at + 71]}" for at in range(72, len(line), 71))]
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "\r\n".join(["Manifest-Version: 1.0", *folded, ""]))
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        member = tarfile.TarInfo("classpath.jar")
        member.size = len(jar.getvalue())
        tar.addfile(member, io.BytesIO(jar.getvalue()))
    return made.getvalue()


def _fetch(cache: Path, folder: Path, release: str, say: Callable[[str], None]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BadInput("Hadoop's jars are fetched by Maven, and there is no mvn on PATH", remedy="apt install maven")
    say(f"fetching Hadoop {release} from Maven's repository")
    part = cache / f"jars-{release}.{os.getpid()}"
    work = part / "work"
    work.mkdir(parents=True)
    try:
        whole = {name: other.get(release, release) for name, other in _ARTIFACTS.items()}
        (work / "pom.xml").write_text(pom({name: v for name, v in whole.items() if v == release}))
        common = [maven, "-q", "-B", "-f", str(work / "pom.xml")]
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={part}", "-DincludeScope=runtime"]
        _maven([*common, *copy, f"-DexcludeArtifactIds={_UNUSED}"], say)
        for name, version in whole.items():
            if version != release:
                # Alone: what it needs is there already. Newer plugins insist on its parents, which are not published.
                get = [maven, "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"]
                artifact = f"-Dartifact=org.apache.hadoop:{name}:{version}"
                _maven([*get, artifact, "-Dtransitive=false", f"-Ddest={part}/{name}-{version}.jar"], say)
        shutil.rmtree(work)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def fetch_alone(folder: Path, artifacts: Iterable[str]) -> None:
    """These (group:name:version), without what they need themselves. Raises BadInput."""
    maven = [shutil.which("mvn") or "mvn", "-q", "-B", "dependency:copy", f"-DoutputDirectory={folder}"]
    for artifact in artifacts:
        _maven([*maven, f"-Dartifact={artifact}"], say=print)


def pom(artifacts: dict[str, str]) -> str:
    lines = [
        f"    <dependency><groupId>org.apache.hadoop</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for name, version in artifacts.items()
    ]
    return _POM.format(dependencies="\n".join(lines))


def _maven(command: list[str], say: Callable[[str], None]) -> None:
    for pause in (*_PAUSES_S, None):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        why = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip())[:300]
        if pause is None:
            raise BadInput(f"Maven cannot fetch Hadoop: {why}", remedy="check ~/.m2/settings.xml and the network")
        say(f"Maven: {why}; again in {pause:g} s")
        time.sleep(pause)


def main() -> int:
    from horae.lab import default_folder
    from yarn_bridge.lab.settings import RELEASES

    try:
        for release in RELEASES:
            jars(default_folder() / "hadoop", release, print)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 1
    return 0
