"""--env, --localization, --quicklink, --conf, --keytab."""

from __future__ import annotations

import pytest

from policy.model import BadInput
from yarn_bridge.submarine import values
from yarn_bridge.submarine.given import Given
from yarn_bridge.submarine.table import BY_NAME
from yarn_bridge.submarine.values import Conf, Localization, LocalPolicy

STAGING = "hdfs:///user/ann/submarine/jobs/j/staging"
STRICT, KIND = LocalPolicy(STAGING, strict=True), LocalPolicy(STAGING, strict=False)


def item(option: str, text: str) -> Given:
    return Given(BY_NAME[option], text, f"--{option}")


def test_the_same_variable_again_is_appended_as_submarine_did() -> None:
    given = [item("env", text) for text in ("PATH=/a", "PATH=/b", "X=1=2", "EMPTY", "Q=:", "Q=z", "X=")]
    assert values.environment(given) == {"PATH": "/a:/b", "X": "1=2", "EMPTY": "", "Q": ":z"}
    with pytest.raises(BadInput, match="no name of a variable"):
        values.environment([item("env", "1A=2")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hdfs:///a/b.py:.", Localization("hdfs:///a/b.py", "b.py")),
        ("hdfs:///a/b.py:./", Localization("hdfs:///a/b.py", "b.py")),
        ("viewfs:///a/b.py:./c.py:rw", Localization("viewfs:///a/b.py", "c.py")),
        ("webhdfs://nn/a/data:/opt/data", Localization("webhdfs://nn/a/data", "data", "/opt/data")),
    ],
)
def test_files_in_hdfs_are_taken(text: str, expected: Localization) -> None:
    assert values.localization(item("localization", text), True, STRICT) == expected


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("./train.py:.", "not in HDFS", f"hdfs dfs -put ./train.py {STAGING}/, then write {STAGING}/train.py:."),
        ("/home/ann/x:./x", "not in HDFS", "hdfs dfs -put /home/ann/x"),
        ("s3a://b/x:.", "not in HDFS", f"hdfs dfs -cp s3a://b/x {STAGING}/x"),
        ("nfs://h/x:/x", "none that Submarine knew", "HDFS"),
        ("hdfs:///a:/opt/a", "needs a docker image", "./a"),
        ("hdfs:///a:b/c", "the local path is", "./NAME"),
        ("hdfs:///a:./b/c", "the local path is", "./NAME"),
        ("hdfs:///a:.:ro", "rw only", "leave it out"),
        ("hdfs:///a", "is not REMOTE:LOCAL", "hdfs:///"),
        ("a:b:c:d", "is not REMOTE:LOCAL", "hdfs:///"),
    ],
)
def test_other_files_are_refused_with_what_to_do(text: str, message: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        values.localization(item("localization", text), False, STRICT)
    assert remedy in caught.value.remedy


def test_settings_of_other_runtimes_are_named() -> None:
    pairs = [
        "tony.yarn.queue=gpu",
        "tony.containers.resources=hdfs:///a,hdfs:///b",
        "submarine.runtime.class=org.apache.submarine.X",
    ]
    assert values.conf([item("conf", pair) for pair in pairs], strict=True) == Conf("gpu", ("hdfs:///a", "hdfs:///b"))
    with pytest.raises(BadInput, match="--num_workers"):
        values.conf([item("conf", "tony.worker.instances=3")], strict=True)
    with pytest.raises(BadInput, match="nothing to act on"):
        values.conf([item("conf", "yarn.x=1")], strict=True)
    with pytest.raises(BadInput, match="no KEY=VALUE"):
        values.conf([item("conf", "yarn.x")], strict=False)


def test_files_elsewhere_are_put_into_hdfs_fetched_or_said() -> None:
    def found(text: str) -> Localization | None:
        return values.localization(item("localization", text), False, KIND)

    local = found("lib/train.py:./t.py")
    assert local is not None
    assert (local.source, local.name, local.upload) == (f"{STAGING}/train.py", "t.py", "lib/train.py")
    bucket = found("s3a://b/x:.")
    assert bucket is not None
    assert (bucket.source, bucket.upload, "s3a://" in bucket.note) == ("s3a://b/x", "", True)
    mounted = found("hdfs:///a:/opt/b")
    assert mounted is not None
    assert (mounted.name, mounted.mount, "./b in the working folder" in mounted.note) == ("b", "", True)
    assert found("nfs://h/x:/x") is None, "nothing of Hadoop's fetches it"


@pytest.mark.parametrize("text", ["ui", "ui=master-0:7070", "ui=https://master-0", "ui=http://master-0:99999"])
def test_a_quicklink_that_is_none_is_told_first(text: str) -> None:
    with pytest.raises(BadInput, match="is not LABEL="):
        values.check_quicklink(item("quicklink", text))


def test_keytabs_are_referred_to_never_copied() -> None:
    def found(text: str, distribute: bool = False) -> str:
        flag = item("distribute_keytab", "true") if distribute else None
        return values.keytab(item("keytab", text), flag, "hdfs:///user/ann")

    assert found("/etc/ann.keytab") == "file:///etc/ann.keytab"
    assert found("hdfs:///user/ann/k", distribute=True) == "hdfs:///user/ann/k"
    with pytest.raises(BadInput, match=r"hdfs dfs -chmod 600 hdfs:///user/ann/ann.keytab"):
        found("/etc/ann.keytab", distribute=True)
    with pytest.raises(BadInput, match="not an absolute path"):
        found("ann.keytab")
