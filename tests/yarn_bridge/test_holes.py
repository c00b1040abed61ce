"""Which releases have which known holes, and nothing of those that have none."""

from __future__ import annotations

import pytest

from horae.doctor import Verdict
from yarn_bridge.clients.quirks import quirks_of
from yarn_bridge.clients.settings import Settings
from yarn_bridge.options import parse_options
from yarn_bridge.site.holes import holes
from yarn_bridge.site.security import proxy_user

TABLE = {
    "2.8.5": ("2021-33036", "2022-25168", "2024-23454"),
    "2.10.1": ("2021-33036", "2021-25642", "2022-25168", "2024-23454"),
    "2.10.2": ("2024-23454",),
    "3.2.0": ("2021-33036", "2021-25642", "2022-25168", "2024-23454"),
    "3.2.4": ("2024-23454",),
    "3.3.1": ("2023-26031", "2021-33036", "2021-25642", "2022-25168", "2024-23454"),
    "3.3.3": ("2023-26031", "2021-25642", "2024-23454"),
    "3.3.6.4-vendor": ("2024-23454",),
    "3.4.0": (),
    "3.4.2": (),
    "3.5.0": (),
}


@pytest.mark.parametrize(("version", "named"), TABLE.items())
def test_holes_of_a_release(version: str, named: tuple[str, ...]) -> None:
    (found,) = holes(version, quirks_of(version))
    assert found.verdict is (Verdict.WARN if named else Verdict.OK)
    assert found.text.count("CVE-") == len(named)
    assert all(f"CVE-{name}" in found.text for name in named)


def test_a_version_that_nobody_can_read_is_not_judged() -> None:
    assert list(holes("trunk", quirks_of("trunk"))) == []


@pytest.mark.parametrize(
    ("hosts", "groups", "auth", "words"),
    [
        ("horae1", "ml", "simple", ""),
        ("horae1", "*", "simple", ""),
        ("*", "ml", "simple", "whoever says that he is horae may act for others, from any host"),
        ("*", "*", "simple", "for everybody, from any host"),
        ("*", "ml", "kerberos", ""),
        ("*", "*", "kerberos", "whoever holds the keytab of horae"),
    ],
)
def test_acting_for_owners_without_limits_is_told(hosts: str, groups: str, auth: str, words: str) -> None:
    options = parse_options(
        {"resource_manager": ["http://rm:8088"], "webhdfs": ["http://nn:9870"], "auth": auth, "doas": True}
    )
    said = Settings({"hadoop.proxyuser.horae.hosts": hosts, "hadoop.proxyuser.horae.groups": groups})
    found = next(each for each in proxy_user(options, Settings({}, "not told"), said) if "NameNode" in each.name)
    assert (found.verdict is Verdict.WARN, words in found.text) == (bool(words), True)
