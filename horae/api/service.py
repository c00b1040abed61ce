"""An arbiter with its API, put together from a configuration: what `horae serve` and `horae demo` run."""

from __future__ import annotations

import os
from collections.abc import Callable

from horae import extras
from horae.api.arbiter import ArbiterBackend
from horae.api.peers import user_name
from horae.api.privacy.access import AccessRules
from horae.api.routes import create_app
from horae.api.server import Server
from horae.arbiter.decide import powerless
from horae.arbiter.observe.measurements import Profiles
from horae.arbiter.service import Arbiter
from horae.config import ClusterForm, Config, socket_path
from horae.configured import adapter, check_policies, in_section
from horae.port import ClusterPort
from horae.sweeps.hook import apps
from policy.model import BadInput


def connect(cluster: ClusterForm) -> ClusterPort:
    """The cluster that the configuration names. Raises BadInput, and what the adapter raises."""
    found = adapter(cluster)
    try:
        function = found.load()
        port: ClusterPort = function(cluster.options)
    except BadInput as error:
        raise in_section(error, "", "cluster.options") from error
    except ModuleNotFoundError as error:
        raise extras.missing(error, field="cluster.adapter", prefer=cluster.adapter) from error
    except ImportError as error:
        raise BadInput(
            f"the adapter {cluster.adapter} cannot be loaded: {error}",
            field="cluster.adapter",
            value=cluster.adapter,
            remedy="install it again, with what it needs",
        ) from error
    return port


def with_operators(config: Config) -> Config:
    """Root and whoever runs the arbiter operate it, whatever the file says: they could do anything anyway."""
    names = dict.fromkeys([*config.operators, user_name(0), user_name(os.getuid())])
    return config.model_copy(update={"operators": list(names)})


def _check_rights(config: Config) -> None:
    """Raises BadInput for a policy that would never be run: another's, where only root can read Python and Horae."""
    kept = powerless.account()[1]
    for index, pool in enumerate(config.pools):
        if why := powerless.barred(pool.policy, kept):
            raise BadInput(why, field=f"pools[{index}].policy", value=pool.policy)


class Service:
    """Raises at once what is wrong with the configuration, the journal, the cluster or the socket."""

    def __init__(self, config: Config, *, profiles: Profiles | None = None) -> None:
        check_policies(config)
        _check_rights(config)
        config = with_operators(config)
        self.socket = socket_path(config)
        self.arbiter = Arbiter(config, connect(config.cluster), profiles=profiles, apps=apps)
        site = AccessRules(frozenset(config.operators), config.api.show_others, homes=config.homes)
        try:
            self.socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._server = Server(create_app(ArbiterBackend(self.arbiter), site), self.socket)
        except BaseException:
            self.arbiter.stop()
            raise

    def start(self) -> None:
        """Return at once; everything runs in threads."""
        self.arbiter.start()
        self._server.start()

    def stop(self) -> None:
        """Running jobs run on."""
        self._server.stop()
        self.arbiter.stop()

    def run(self, begins: Callable[[], None] = lambda: None) -> int:
        """In the foreground, until SIGTERM or SIGINT. 0: stopped; 1: another arbiter has the cluster. `begins`: called
        once it answers, and these stop it in good order."""
        self._server.start()
        try:
            return self.arbiter.run(begins)
        finally:
            self._server.stop()
