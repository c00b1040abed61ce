"""What `doctor` finds under Kerberos, and what `install` writes for it: who is let in, for whom, and for how long."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from horae.doctor import Verdict
from horae.port import FixConfiguration
from tests.yarn_bridge.fake import Asked, Reply, serving
from yarn_bridge.clients.settings import Settings
from yarn_bridge.jobs.token_life import SETTING
from yarn_bridge.options import Options
from yarn_bridge.site import security
from yarn_bridge.site.install import DEFAULTS, core_site
from yarn_bridge.site.xml import properties

KERBEROS = Options(auth="kerberos", principal="horae@LAB", keytab="/etc/horae.keytab")


@pytest.fixture(autouse=True)
def ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "Spnego", lambda *_: SimpleNamespace(left_s=lambda: 7200.0))


def doors(answer: Reply | None = None, named: Reply | None = None) -> dict[str, Verdict]:
    """The verdicts where a request without credentials is answered so, and one with a bare name so."""
    refused = Reply(401, "Authentication required")

    def answers(asked: Asked) -> Reply:
        return (named if "user.name" in asked.query else answer) or refused

    with serving(answers) as fake:
        options = Options(resource_manager=(fake.url,), webhdfs=(fake.url,), auth="kerberos")
        found = list(security.credentials(options))
    assert all(check.remedy for check in found if check.verdict is Verdict.FAIL)
    return {check.name: check.verdict for check in found if check.name.startswith("credentials")}


def test_all_three_doors_must_refuse_who_has_no_ticket() -> None:
    """RPC under Kerberos alone leaves them open: WebHDFS then believes any name, its superuser's too."""
    three = {"credentials: ResourceManager", "credentials: Services API", "credentials: WebHDFS"}
    assert doors() == dict.fromkeys(three, Verdict.OK)
    assert doors(answer=Reply(200, {})) == dict.fromkeys(three, Verdict.FAIL)
    assert doors(named=Reply(200, {})) == dict.fromkeys(three, Verdict.FAIL)


@pytest.mark.parametrize(
    ("options", "names", "verdict", "text"),
    [
        (KERBEROS, Settings({}), Verdict.OK, "7.0 days: "),
        (KERBEROS, Settings({SETTING: "14d"}), Verdict.OK, "14.0 days"),
        (KERBEROS, Settings({SETTING: "3600000"}), Verdict.WARN, "1.0 hours: "),
        (KERBEROS, Settings({}, "it is for administrators"), Verdict.WARN, "the NameNode does not tell"),
        (Options(auth="kerberos", token_life_s=172_800.0), Settings({}, "not told"), Verdict.OK, "2.0 days"),
    ],
)
def test_the_life_of_tokens_is_told(options: Options, names: Settings, verdict: Verdict, text: str) -> None:
    (found,) = security.tokens(options, Settings({}), names)
    assert (found.name, found.verdict) == ("token lifetime", verdict)
    assert text in found.text


def test_without_kerberos_there_are_no_tokens_to_tell_of() -> None:
    assert list(security.tokens(Options(), Settings({}), Settings({}))) == []


def test_who_renews_the_tokens_of_slices_is_told() -> None:
    conf = Settings({"yarn.resourcemanager.principal": "rm/_HOST@LAB", "fs.defaultFS": "hdfs://prod"})
    names = Settings({"dfs.ha.namenodes.prod": "a,b"})
    options = replace(KERBEROS, resource_manager=("http://rm1:8088",), webhdfs=("http://nn1:9870",))
    (found,) = security.slice_tokens(options, conf, names)
    assert (found.verdict, found.text) == (Verdict.OK, "the owner's, for ha-hdfs:prod; rm/rm1@LAB renews them")
    (found,) = security.slice_tokens(options, conf, Settings({}))
    assert "the NameNode's own address" in found.text
    with pytest.raises(FixConfiguration, match=r"yarn.resourcemanager.principal"):
        list(security.slice_tokens(options, Settings({}), names))
    assert list(security.slice_tokens(replace(options, auth="simple"), Settings({}), names)) == []


@pytest.mark.parametrize(("auth", "wanted"), [("kerberos", security.PLAIN_FILTER), ("simple", security.PROXY_FILTER)])
def test_install_writes_the_proxy_users_lines_and_the_filter(auth: str, wanted: str) -> None:
    found = properties(core_site({**DEFAULTS, "user": "horae", "auth": auth}), "core-site.xml")
    assert found["hadoop.http.filter.initializers"] == wanted
    assert {"hadoop.proxyuser.horae.hosts", "hadoop.proxyuser.horae.groups"} <= set(found)
