"""A private Hadoop under Kerberos with a KDC of its own, as `horae lab up hadoop --kerberos` makes it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from horae.lab import LabRequest, default_folder
from horae.spec import JobSpec
from policy.model import EMPTY, BadInput, GpuRange
from tests.real import books
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.lab import kerberos
from yarn_bridge.lab.private import KERBEROS, PrivateHadoop
from yarn_bridge.options import Options, parse_options

REALM = kerberos.REALM
TRAINER = Path(__file__).parents[1] / "contract" / "trainer.py"


@contextmanager
def secured(
    folder: Path,
    settings: Mapping[str, str] = EMPTY,
    *,
    nodes: int = 2,
    release: str = "",
    features: frozenset[str] = frozenset(),
) -> Iterator[PrivateHadoop]:
    """A cluster under Kerberos, with homes for alice and carol, and a keytab in alice's.

    `settings`: on top of hdfs-site.xml (`dfs.*`) and yarn-site.xml.
    """
    lab = PrivateHadoop(folder, default_folder() / "hadoop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", "")  # the lab says its own, and afterwards there is none
        try:
            kerberos.check()
        except BadInput as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        try:
            wanted = frozenset({KERBEROS}) | features
            lab.up(LabRequest("krb", release, nodes, (("v100", 4),), options=settings, features=wanted))
            yield lab
            _check_books(lab)
        finally:
            lab.down()


def _check_books(lab: PrivateHadoop) -> None:
    options = options_of(lab)
    manager = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    books.check(manager)
    manager.close()


def options_of(lab: PrivateHadoop) -> Options:
    """The bridge's."""
    return parse_options(lab.facts())


def job_of(owner: str, options: Options, folder: Path) -> JobSpec:
    shutil.copy(TRAINER, folder / "trainer.py")
    folder.chmod(0o755)
    url = "webhdfs://" + ",".join(each.partition("://")[2] for each in options.webhdfs)
    return JobSpec(
        name="krb",
        command=(sys.executable, str(folder / "trainer.py"), "trains"),
        gpus=GpuRange(requested=1, min=1, max=4),
        owner=owner,
        checkpoint=f"{url}/user/{owner}/krb-checkpoints",
        memory_per_gpu=256 << 20,
        grace_s=30.0,
    )
