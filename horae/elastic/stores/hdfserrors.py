"""What HDFS says when it refuses, told with what to do, and whether waiting may help."""

import json
import re
from typing import Optional, Tuple

#: (exception or words of the message, what to add, whether it passes by itself)
_MEANINGS: Tuple[Tuple[str, str, bool], ...] = (
    (
        "NSQuotaExceeded|NameSpace quota",
        "the quota of names there is used up: keep fewer checkpoints, or ask for more (hdfs dfsadmin -setQuota)",
        False,
    ),
    (
        "DSQuotaExceeded|QuotaByStorageType|DiskSpace quota|space quota",
        "the quota of space there is used up: remove old checkpoints, or ask for more (hdfs dfsadmin -setSpaceQuota)",
        False,
    ),
    ("XAttrs has been disabled", "the NameNode needs dfs.namenode.xattrs.enabled, which is true by default", False),
    ("SafeMode|safe mode", "nothing can be written until the NameNode leaves its safe mode", True),
    ("StandbyException|state standby", "this NameNode is not the active one", True),
    ("RetriableException", "the NameNode is busy", True),
    ("could only be (written|replicated)|0 datanode", "no DataNode takes the data", True),
    ("InvalidToken|token .*(expired|can't be found)", "the delegation token is over: a new one is needed", False),
    (
        "AccessControlException|Permission denied",
        "this user may not do that there: check the folder's owner and mode, and $HADOOP_USER_NAME",
        False,
    ),
    ("is not allowed to impersonate", "the NameNode lacks the hadoop.proxyuser settings of this user", False),
)
_STANDBY = re.compile("StandbyException|state standby")
_ELSEWHERE = re.compile("StandbyException|state standby|RetriableException")


class HdfsError(OSError):
    """HDFS refused; the text is its own, with what to do. `elsewhere`: another NameNode may say more."""

    def __init__(self, status: int, text: str, exception: str = "", body: bytes = b"") -> None:
        whole = "%s: %s" % (exception, text)
        self.status = status
        self.exception = exception
        self.body = body  #: as it came
        self.standby = bool(_STANDBY.search(whole))
        self.elsewhere = bool(_ELSEWHERE.search(whole))
        advice, self.passes = _meaning(whole, status)
        super().__init__("HDFS: %s (HTTP %d)%s" % (text, status, "; " + advice if advice else ""))


def refusal(status: int, body: bytes, kind: Optional[str] = None) -> HdfsError:
    """The error in an answer of 300 or more: JSON of a RemoteException, a web server's page, or anything."""
    text = body.decode(errors="replace").strip()
    exception = ""
    try:
        inner = json.loads(text)["RemoteException"]
        exception, text = str(inner.get("exception", "")), str(inner["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        if text.startswith("<") or "html" in (kind or ""):
            text = _page(text)
    lines = text.splitlines()
    return HdfsError(status, lines[0][:300].strip() if lines else "no explanation", exception, body)


def _page(text: str) -> str:
    import html  # here: each start of a trainer would wait for it

    found = re.search(r"<th>MESSAGE:</th>\s*<td>(.*?)</td>", text, re.DOTALL | re.IGNORECASE)
    found = found or re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    shown = found.group(1) if found else re.sub(r"<[^>]*>", " ", text)
    return " ".join(html.unescape(shown).split())


def _meaning(whole: str, status: int) -> "Tuple[str, bool]":
    for pattern, advice, passes in _MEANINGS:
        if re.search(pattern, whole, re.IGNORECASE):
            return advice, passes
    if status == 401:
        return "it wants to know who asks: this site needs a delegation token or Kerberos", False
    return "", status >= 500
