"""The part of `horae doctor` for YARN that asks who is let in, and in whose name."""

from __future__ import annotations

from collections.abc import Iterator

from horae.doctor import Check, fail, ok, warn
from yarn_bridge.clients.http import KERBEROS, HttpClient
from yarn_bridge.clients.settings import Settings
from yarn_bridge.clients.spnego import Spnego
from yarn_bridge.jobs.state_machine import RENEW_AT
from yarn_bridge.jobs.token_life import DEFAULT_S, SETTING, told
from yarn_bridge.options import Options
from yarn_bridge.runtimes.slice_tokens import renewer_of, service_of
from yarn_bridge.site.xml import remedy

PROXY_FILTER = "org.apache.hadoop.security.authentication.server.ProxyUserAuthenticationFilterInitializer"
PLAIN_FILTER = "org.apache.hadoop.security.AuthenticationFilterInitializer"
_DAY_S = 86_400.0


def credentials(options: Options) -> Iterator[Check]:
    """Each web interface without credentials, and with a bare name. Kerberos must refuse both."""
    managers, namenodes = options.access(options.resource_manager), options.access(options.webhdfs)
    doors: tuple[tuple[str, HttpClient, str, dict[str, str]], ...] = (
        ("ResourceManager", HttpClient(managers, "ResourceManager"), "/ws/v1/cluster/metrics", {}),
        ("Services API", HttpClient(managers, "ResourceManager"), "/app/v1/services/horae-doctor", {}),
        ("WebHDFS", HttpClient(namenodes, "NameNode"), "/webhdfs/v1/", {"op": "LISTSTATUS"}),
    )
    for name, http, path, query in doors:
        nobody = http.ask("GET", path, query=query, anonymous=True).status
        named = http.ask("GET", path, query={**query, "user.name": "horae-doctor"}, anonymous=True).status
        http.close()
        if options.auth == KERBEROS:
            if nobody == named == 401:
                yield ok(f"credentials: {name}", "asks for Kerberos")
            else:
                yield fail(
                    f"credentials: {name}", f"lets strangers in ({nobody} without a name, {named} with any)",
                    remedy("core-site.xml everywhere", {
                        "hadoop.http.filter.initializers": PLAIN_FILTER,
                        "hadoop.http.authentication.type": "kerberos",
                    }),
                )  # fmt: skip
        elif nobody != 401:
            yield warn(
                f"credentials: {name}", "answers without any name",
                remedy("core-site.xml", {"hadoop.http.authentication.simple.anonymous.allowed": "false"}),
            )  # fmt: skip
    if options.auth == KERBEROS:
        left = Spnego(options.principal, options.keytab).left_s()
        yield ok("ticket", f"{options.principal or 'of the ticket cache'}, good for {left / 3600:.1f} h")
    else:
        yield warn(
            "credentials", "this cluster believes any user.name: everybody on its network can be everybody",
            "Kerberos, or a network that only trusted hosts reach; see the security part of the YARN site guide",
        )  # fmt: skip


def proxy_user(options: Options, conf: Settings, names: Settings) -> Iterator[Check]:
    """Acting for owners: what the daemons are told, and whether the ResourceManager heeds it."""
    if not (options.doas or options.auth == KERBEROS):
        return
    for name, found in (("ResourceManager", conf), ("NameNode", names)):
        if found.why:
            continue
        prefix = f"hadoop.proxyuser.{options.user}"
        if found.get(f"{prefix}.hosts") and (found.get(f"{prefix}.users") or found.get(f"{prefix}.groups")):
            yield from _limits(options, name, found)
        else:
            yield fail(f"acting for owners: {name}", f"{options.user} may not", remedy(
                f"core-site.xml of the {name}", {f"{prefix}.hosts": "HOST-OF-HORAE", f"{prefix}.groups": "GROUP"}
            ))  # fmt: skip
    filters = conf.get("hadoop.http.filter.initializers")
    # Under Kerberos the ResourceManager makes a filter of its own out of the plain one, which heeds doAs too, and
    # tells of that one.
    heeded = PROXY_FILTER in filters or (options.auth == KERBEROS and "AuthenticationFilterInitializer" in filters)
    if not conf.why and not heeded:
        yield fail(
            "acting for owners", "the ResourceManager does not heed doAs: jobs would be Horae's own",
            remedy("core-site.xml of the ResourceManager", {
                "hadoop.http.filter.initializers": PLAIN_FILTER if options.auth == KERBEROS else PROXY_FILTER
            }),
        )  # fmt: skip


def _limits(options: Options, name: str, found: Settings) -> Iterator[Check]:
    """For whom it may act, and from where: with a star for both, whoever has its name has everybody's."""
    prefix = f"hadoop.proxyuser.{options.user}"
    anywhere = found.get(f"{prefix}.hosts").strip() == "*"
    anybody = "*" in {found.get(f"{prefix}.users").strip(), found.get(f"{prefix}.groups").strip()}
    if not anywhere or (options.auth == KERBEROS and not anybody):
        yield ok(f"acting for owners: {name}", f"{options.user} may")
        return
    says = "whoever says that he is" if options.auth != KERBEROS else "whoever holds the keytab of"
    yield warn(
        f"acting for owners: {name}",
        f"{says} {options.user} may act for {'everybody' if anybody else 'others'}, from any host",
        remedy(f"core-site.xml of the {name}", {f"{prefix}.hosts": "HOST-OF-HORAE", f"{prefix}.groups": "GROUP"}),
    )


def tokens(options: Options, conf: Settings, names: Settings) -> Iterator[Check]:
    """Under Kerberos no job outlives its HDFS token: its workers can write nothing then, keytab or not."""
    if options.auth != KERBEROS:
        return
    life_s = options.token_life_s or told(names)
    text = (
        f"{_span(life_s)}: a job that runs on is stopped at a checkpoint for a new one after {_span(life_s * RENEW_AT)}"
    )
    if names.why and not options.token_life_s:
        yield warn("token lifetime", f"{text}; the NameNode does not tell: {names.why}", "set `token_life_s`")
    elif life_s < _DAY_S:
        yield warn(
            "token lifetime", text, remedy("hdfs-site.xml of the NameNode", {SETTING: f"{DEFAULT_S * 1000:.0f}"})
        )
    else:
        yield ok("token lifetime", text)


def slice_tokens(options: Options, conf: Settings, names: Settings) -> Iterator[Check]:
    """Under Kerberos each slice has a token of its own. Raises FixConfiguration where nobody would renew it."""
    if options.auth != KERBEROS:
        return
    renewer = renewer_of(conf, options.resource_manager[0])
    where = service_of(conf, names, len(options.webhdfs)) or "the NameNode's own address"
    yield ok("tokens of slices", f"the owner's, for {where}; {renewer} renews them")


def _span(seconds: float) -> str:
    return f"{seconds / _DAY_S:.1f} days" if seconds >= _DAY_S else f"{seconds / 3600:.1f} hours"
