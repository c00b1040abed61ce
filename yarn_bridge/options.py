"""The options of a YARN cluster, as the site's configuration gives them to `connect`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horae.options import typed_options
from policy.model import BadInput
from yarn_bridge.clients.http import KERBEROS, SIMPLE, Access

#: How a job gets its containers (`runtimes/`).
SERVICES, SLICES = "services", "slices"
AUTHS = (SIMPLE, KERBEROS)
#: Who the tenants are.
BY_QUEUE, BY_USER = "queue", "user"
AUTO = "auto"
#: `kind_attribute` where a node's label is its type
LABEL = "label"
RUNTIMES, TENANTS = (SERVICES, SLICES, AUTO), (BY_USER, BY_QUEUE)
_USER = re.compile(r"[a-z_][a-z0-9_.-]*\$?")


@dataclass(frozen=True, slots=True)
class Options:
    """`resource_manager` and `webhdfs` must be given; the rest has the defaults of a plain site."""

    resource_manager: tuple[str, ...] = ()  #: web addresses: http://rm1:8088, one a server; a gateway's with its path
    webhdfs: tuple[str, ...] = ()  #: web addresses of the NameNodes: http://nn1:9870
    queue: str = "default"  #: leaf queue of Horae's jobs, where a job does not say another; above those of the tenants
    tenants: str = BY_USER  #: user, or queue: the leaf queues of `queue`, as the scheduler weighs and limits them
    user: str = "horae"  #: the bridge's own name, and the owner of jobs that name none
    folder: str = ""  #: in HDFS; what the bridge and its jobs keep; default: /user/USER/horae
    auth: str = SIMPLE
    doas: bool = False  #: the proxy-user filter is on: act for owners by doAs
    principal: str = ""
    keytab: str = ""
    ca: str = ""  #: file of the certificate authority
    hdfs_names: tuple[tuple[str, str], ...] = ()  #: DataNodes' names that do not resolve here -> addresses
    env: tuple[tuple[str, str], ...] = ()  #: given to every worker
    python: str = "python3"  #: on the nodes, 3.7 or newer
    memory_mib: int = 2048  #: of a worker whose job does not say
    cpus: int = 1
    kind_attribute: str = "nm.yarn.io/gpukind"  #: node attribute that names the GPU type; or `label`
    kind: str = "gpu"  #: GPU type of nodes without that attribute whose resource names none
    runtime: str = AUTO  #: services, slices, or what the cluster offers
    framework: str = ""  #: in HDFS, Hadoop's jars for slices; default: yarn.service.framework.path, else the nodes' own
    slice_memory_mib: int = 512  #: of a slice's application master
    gang_s: float = 120.0  #: a gang that does not stand by then is given back
    timeout_s: float = 35.0
    requests_per_s: float = 50.0  #: most to each daemon, after a burst
    token_life_s: float = 0.0  #: of HDFS delegation tokens; 0: under Kerberos as the NameNode says, else for ever

    @property
    def root(self) -> str:
        return self.folder or f"/user/{self.user}/horae"

    def access(self, urls: tuple[str, ...]) -> Access:
        return Access(
            urls=urls,
            user=self.user,
            auth=self.auth,
            doas=self.doas,
            principal=self.principal,
            keytab=self.keytab,
            verify=self.ca or True,
            read_s=self.timeout_s,
            requests_per_s=self.requests_per_s,
        )


def parse_options(options: Mapping[str, Any], where: str = "cluster.yarn") -> Options:
    """Raises BadInput naming the option to mend."""
    found = Options(**typed_options(Options, options, where, maps=frozenset({"env", "hdfs_names"})))
    for key, example in (("resource_manager", "http://rm1:8088"), ("webhdfs", "http://nn1:9870")):
        urls = getattr(found, key)
        if not urls:
            raise BadInput("must be given", where=where, field=key, remedy=f"for example {key}: [{example}]")
        for url in urls:
            _check_url(url, where, key, example)
    for key, words in (("auth", AUTHS), ("runtime", RUNTIMES), ("tenants", TENANTS)):
        value = getattr(found, key)
        if value not in words:
            raise BadInput("is not known", where=where, field=key, value=value, remedy=f"one of {', '.join(words)}")
    if "_HOST" in found.principal:
        raise BadInput(
            "is a server's: nothing stands for the arbiter's host", where=where, field="principal",
            value=found.principal, remedy="the principal as the keytab has it (klist -kt KEYTAB), horae@REALM say",
        )  # fmt: skip
    if not _USER.fullmatch(found.user):
        raise BadInput("is not a user's name", where=where, field="user", value=found.user)
    for key in ("folder", "framework"):
        path = getattr(found, key)
        if path and not re.fullmatch(r"(/[\w.=-]+)+", path):
            raise BadInput("is not an absolute path in HDFS", where=where, field=key, value=path)
    return found


def _check_url(url: str, where: str, key: str, example: str) -> None:
    """A server's address; behind a gateway with the path up to what Horae's own requests begin with."""
    found = re.fullmatch(r"https?://[^/\s?#]+((?:/[\w.~-]+)*)/?", url)
    if found is None:
        raise BadInput("is not a web address", where=where, field=key, value=url, remedy=f"as in {example}")
    own = re.search(r"(/webhdfs(/v1)?|/ws(/v1(/cluster)?)?)/?$", url)
    if own is not None:
        remedy = f"{url[: own.start()]}: Horae adds the rest"
        raise BadInput("goes on too far", where=where, field=key, value=url, remedy=remedy)
