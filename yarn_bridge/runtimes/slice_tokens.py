"""The HDFS token of a slice under Kerberos: taken in its owner's name, handed to YARN with the submission.

A distributed shell gives its workers what it was given itself, and nothing gets it a token but who submits it. So the
bridge asks the NameNode for one by doAs, and puts it into the submission's `credentials`:

* Its renewer is the ResourceManager, which renews it while the slice lives and cancels it when the slice has ended. A
  principal will do: the NameNode makes the short name of it by its own rules.
* WebHDFS gives it as a token of its own kind. ResourceManager, application master and NodeManager speak to HDFS by
  RPC, and look for another kind; the identifier and the password are the same.
* They find it by its service: address and port of the NameNode, as WebHDFS says. Where NameNodes are in high
  availability it is the name of them all: with one's address the token is good until the other one takes over.

A token is a secret: it is in the body of the submission and nowhere else, and never in an error's text.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from horae.elastic.stores.container_tokens import KIND, fields_of, word_of
from horae.port import FixConfiguration, PortError
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.settings import Settings, settings_of
from yarn_bridge.options import Options

PRINCIPAL = "yarn.resourcemanager.principal"
_DEFAULT_FS, _NAMENODES = "fs.defaultFS", "dfs.ha.namenodes."
#: before the name of NameNodes in high availability
_LOGICAL = "ha-hdfs:"
_NAMENODE = "/webhdfs/v1/"


@dataclass(frozen=True, slots=True)
class HdfsToken:
    identifier: bytes
    password: bytes = field(repr=False)
    kind: bytes
    service: bytes

    @property
    def word(self) -> str:
        """As REST takes it. A secret."""
        return word_of((self.identifier, self.password, self.kind, self.service))

    @property
    def owner(self) -> str:
        """Whose it is; a principal's first part. Raises ValueError for an identifier that is not HDFS's."""
        try:
            (owner, _, _), _ = fields_of(
                self.identifier, 1, 3
            )  # behind a byte for the version: owner, renewer, real user
        except IndexError:
            raise ValueError("not the identifier of a delegation token") from None
        return re.split("[/@]", owner.decode(errors="replace"))[0]

    def for_rpc(self, service: str = "") -> HdfsToken:
        """The same token as Hadoop's own clients look for it. `service`: where it is not the one that WebHDFS said."""
        return HdfsToken(self.identifier, self.password, KIND, service.encode() or self.service)

    def credentials(self) -> dict[str, Any]:
        """Of a submission. A secret."""
        return {"tokens": {"entry": [{"key": self.service.decode(errors="replace"), "value": self.word}]}}


def parse(word: str) -> HdfsToken:
    """What WebHDFS gives. Raises ValueError, which does not repeat it."""
    try:
        data = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        found, end = fields_of(data, 0, 4)
    except (binascii.Error, IndexError, ValueError):
        raise ValueError("not a token in Hadoop's words") from None
    if end != len(data):
        raise ValueError("not a token in Hadoop's words")
    return HdfsToken(*found)


def service_of(conf: Settings, names: Settings, addresses: int) -> str:
    """The service of HDFS's tokens where NameNodes are in high availability; "" where one serves alone.

    `conf`, `names`: of the ResourceManager and the NameNode; `addresses`: how many NameNodes the configuration names.
    """
    place = urlsplit(conf.get(_DEFAULT_FS) or names.get(_DEFAULT_FS))
    if place.scheme != "hdfs" or not place.hostname or place.port is not None:
        return ""
    name = place.netloc
    told = any(found.get(_NAMENODES + name) for found in (conf, names))
    return f"{_LOGICAL}{name}" if told or (names.why and addresses > 1) else ""


def renewer_of(conf: Settings, manager: str) -> str:
    """The ResourceManager's principal. `manager`: its address. Raises FixConfiguration where it is not told."""
    principal = conf.get(PRINCIPAL)
    if not principal:
        raise FixConfiguration(
            f"who renews the HDFS tokens of slices? {conf.why or f'the ResourceManager has no {PRINCIPAL}'}",
            "let Horae's user read the ResourceManager's /conf, or switch the Services API on",
        )
    return principal.replace("_HOST", (urlsplit(manager).hostname or "").lower())


class SliceTokens:
    """Threads may share it."""

    def __init__(self, options: Options, manager: ResourceManager) -> None:
        self._options, self._manager = options, manager
        self._http: HttpClient | None = None
        self._found: tuple[str, str] | None = None  #: renewer and service

    def get(self, owner: str) -> HdfsToken:
        """A new one of the owner's. Raises FixConfiguration for one that may not be had, or is somebody else's."""
        http = self._namenode()
        renewer, service = self._known(http)
        doing = f"getting an HDFS token of {owner}"
        query = {"op": "GETDELEGATIONTOKEN", "renewer": renewer}
        said = http.ask("GET", _NAMENODE, owner=owner, query=query).get(doing, "Token", "urlString")
        if not said:
            raise FixConfiguration(
                f"{doing}: the NameNode gives none", "hadoop.security.authentication must be kerberos there"
            )
        try:
            token = parse(str(said))
            whose = token.owner
        except ValueError as error:
            raise FixConfiguration(f"{doing}: {error}", "is `webhdfs` the address of a NameNode?") from None
        if whose != owner:
            # Without doAs the NameNode gives the bridge's own: a job must not be handed that.
            with suppress(PortError):
                self.cancel(token, "")
            raise FixConfiguration(
                f"{doing}: the NameNode gave one of {whose}",
                f"the NameNode must heed doAs: hadoop.proxyuser.{self._options.user} in its core-site.xml",
            )
        return token.for_rpc(service)

    def cancel(self, token: HdfsToken, owner: str) -> None:
        """Nobody can use it any more. Raises PortError."""
        query = {"op": "CANCELDELEGATIONTOKEN", "token": token.word}
        self._namenode().ask("PUT", _NAMENODE, owner=owner, query=query).check("giving an HDFS token back")

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def _namenode(self) -> HttpClient:
        if self._http is None:
            self._http = HttpClient(self._options.access(self._options.webhdfs), "NameNode")
        return self._http

    def _known(self, http: HttpClient) -> tuple[str, str]:
        """Renewer and service, found out once."""
        if self._found is None:
            conf = settings_of(self._manager.http, "the ResourceManager")
            names = settings_of(http, "the NameNode")
            renewer = renewer_of(conf, self._manager.http.url)
            self._found = renewer, service_of(conf, names, len(self._options.webhdfs))
        return self._found
