"""What Hadoop's web servers answer when they refuse, as one plain sentence and an error of the port.

Bodies seen: `RemoteException` in JSON and XML, the Services API's `diagnostics` (often with a Java stack behind it),
Jetty's error page in JSON and HTML, plain text, nothing. The table is by meaning and the first match wins; what is
not in it is decided by the status alone: 4xx is `Never`, 404 and 5xx are `TryLater`, since a job must not be dropped
because of a sentence that nobody has seen before: `Gone` needs the words of the daemon that would know.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import Any

from horae.port import FixConfiguration, Never, PortError, TryLater

_LONGEST = 400


class Gone(Never):
    """There is no such application, service, container or file (any more), or not for this user."""


class Exists(Never):
    """The name is taken."""


class Powerless(FixConfiguration):
    """The site lets the bridge not act for this user: nothing that the user did."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer with a status of 300 or more."""

    status: int
    exception: str  #: Java's class without its package, "" where the body has none
    message: str  #: one sentence, never empty

    def error(self, doing: str) -> PortError:
        """The port's error for it, met while `doing` something (a verb phrase for people)."""
        said = f"{doing}: {self.message} (HTTP {self.status})"
        whole = f"{self.exception}: {self.message}"
        for pattern, make, remedy in _MEANINGS:
            if re.search(pattern, whole, re.IGNORECASE):
                error: PortError = make(said, remedy) if issubclass(make, FixConfiguration) else make(said)
                return error
        if self.status == 401:
            return FixConfiguration(said, "no valid credentials were sent: check the user, or the keytab and clocks")
        if self.status == 403:
            return FixConfiguration(said, "give this user the right, see `horae doctor`")
        if 300 <= self.status < 400:
            return TryLater(f"{said}: it sends us elsewhere, where nobody was asked", retry_after_s=5.0)
        # Who knows that something is not there says so in words (above); any other 404 is of a half-started server.
        if self.status in {404, 429} or self.status >= 500:
            return TryLater(said, retry_after_s=5.0)
        return Never(said)


#: Pattern over "Exception: message" -> what the caller does next, and for FixConfiguration the remedy. A message holds
#: names and paths that somebody chose: a class is one by its colon, and words have a blank, which no job's id has.
_MEANINGS: tuple[tuple[str, Any, str], ...] = (
    (r"is not allowed to impersonate|Unauthorized connection for super-user", Powerless,
     "set hadoop.proxyuser.BRIDGE.hosts and .users (or .groups) in core-site.xml of ResourceManager and NameNode"),
    (r"XAttrs has been disabled", FixConfiguration,
     "set dfs.namenode.xattrs.enabled to true, its default, in the NameNode's hdfs-site.xml: documents are kept so"),
    (r"SafeModeException:|in safe ?mode", TryLater, ""),
    (r"(?:Standby|Retriable)Exception:|not yet (?:active|initialized)|any (?:active|valid) RM", TryLater, ""),
    (r"QuotaExceededException:|quota .*exceeded|exceeds? .*quota", FixConfiguration,
     "raise the folder's quota (hdfs dfsadmin -setSpaceQuota / -setQuota) or remove old files there"),
    (r"XAttr is too big", FixConfiguration,
     "raise dfs.namenode.fs-limits.max-xattr-size (32768 at most) in hdfs-site.xml of the NameNodes"),
    (r"could only be (?:written|replicated) to 0|There are 0 datanode", TryLater, ""),
    # A file that is being written to, or whose DataNode is away for the moment.
    (r"Cannot obtain block length|Could not obtain (?:the last )?block|BlockMissingException", TryLater, ""),
    (r"InvalidToken:|token .*(?:expired|can't be found)", FixConfiguration,
     "the delegation token is over: get a new one"),
    (r"GSSException|Kerberos server principal|kerberos principal|No principal specified", FixConfiguration,
     "see the Kerberos part of the YARN site guide: the owner's service principal and keytab"),
    (r"Expected auth type is kerberos", FixConfiguration, "delegation tokens need Kerberos on the web servers"),
    (r"flex can only be invoked when service is running", TryLater, ""),
    (r"because it (?:already exists|is still running)", TryLater, ""),
    (r"is already taken", Exists, ""),
    (r"File does not exist: \S*/\.yarn/services/", Gone, ""),
    (r"Services? \S+ not found|Service \S+ doesn't exist|app with id: \S+ not found|NotFoundException:", Gone, ""),
    (r"File does not exist", Gone, ""),
    (r"(?:Connection|failed on connection).*(?:refused|exception)|Call From .* failed|NoNodeException|"
     r"KeeperErrorCode|ConnectionLoss", TryLater, ""),
    (r"Permission denied: user=\S+ access=WRITE, inode=\"/user\"", FixConfiguration,
     "make the user's HDFS home: hdfs dfs -mkdir /user/NAME; hdfs dfs -chown NAME /user/NAME"),
    (r"submitted by user (?:: )?\S+ to (?:unknown|non-leaf) queue|is not a? ?leaf queue", FixConfiguration,
     "name a leaf queue that is there (a queue made by REST is gone after a restart, where it was kept in memory)"),
    (r"not have permission to submit|cannot submit applications to queue", FixConfiguration,
     "name the job's owner in acl_submit_applications of the queue"),
    (r"already has \d+ applications", FixConfiguration, "raise the queue's maximum-applications"),
    (r"Cannot accept submission of application", FixConfiguration, "set the queue's state to RUNNING"),
    (r"Permission denied|AccessControlException", FixConfiguration, "give the user that right in HDFS or on the queue"),
    (r"only admins can|User is not admin|not authorized for", FixConfiguration,
     "name the bridge's user in yarn.admin.acl (and in the queue's acl_administer_queue)"),
    (r"Unauthorized attempt", FixConfiguration, "name the bridge's user in the queue's acl_administer_queue"),
    # Whatever the reason: each other try makes another application that failed.
    (r"Failed to submit application_\S+ to YARN :", FixConfiguration, "see why YARN takes no such application"),
)  # fmt: skip


def refusal(status: int, body: bytes) -> Refusal:
    """What a body of 400 or more says; never raises."""
    text = body.decode(errors="replace").strip()
    exception, message = "", ""
    if text[:1] in "{[":
        exception, message = _from_json(text)
    elif text.startswith("<"):
        exception, message = _from_markup(text)
    else:
        message = text
    return Refusal(status, exception, _sentence(message) or _sentence(exception) or "no reason was given")


def _from_json(text: str) -> tuple[str, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "", text
    if isinstance(value, dict):
        inner = value.get("RemoteException", value)
        if isinstance(inner, dict):
            message = inner.get("message") or inner.get("diagnostics") or inner.get("localizedMessage") or ""
            return str(inner.get("exception", "")), str(message)
    return "", text


def _from_markup(text: str) -> tuple[str, str]:
    """XML of a RemoteException, or the title of an HTML page and what its body says first."""
    exception = re.search(r"<exception>([^<]*)</exception>", text)
    message = re.search(r"<(message|diagnostics)>(.*?)</\1>", text, re.DOTALL)
    if message or exception:
        return exception.group(1) if exception else "", html.unescape(message.group(2)) if message else ""
    cell = re.search(r"<th>MESSAGE:</th>\s*<td>(.*?)</td>", text, re.DOTALL | re.IGNORECASE)
    title = cell or re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    shown = title.group(1) if title else re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
    return "", html.unescape(re.sub(r"<[^>]*>", " ", shown))


def _sentence(text: str) -> str:
    first = re.split(r"\n\s*at |\n", text.strip(), maxsplit=1)[0]
    # The classes that say nothing; any other name may be what the sentence means.
    first = re.sub(r"^(?:java\.lang\.Exception|java\.io\.IOException): ", "", first)
    return re.sub(r"\s+", " ", first).strip()[:_LONGEST]
