"""The scheduler's configuration behind REST, as a text that can be shown, changed and put back like a file.

One line a property, sorted: `yarn.scheduler.capacity.root.horae.capacity = 40`. Writing a text sends only what
differs, queue by queue: added, changed, removed. A queue that is removed must stop first, and while applications run
in it the ResourceManager refuses. The lists of children are its own to keep: they follow from the queues.
"""

from __future__ import annotations

from collections.abc import Mapping

from horae.port import PortError
from policy.model import BadInput
from yarn_bridge.clients.resource_manager import QueueEdits, ResourceManager

PREFIX = "yarn.scheduler.capacity."
PLACE = "scheduler-conf of "


class SchedulerConf:
    """A place of `horae install`. `name` holds the address, and nothing secret."""

    def __init__(self, manager: ResourceManager, user: str) -> None:
        self._manager, self._user = manager, user
        access = manager.http.access
        self.name = PLACE + " ".join(access.urls) + f" as {user} by {access.auth}"

    def read(self) -> bytes | None:
        found = self.values()
        return None if found is None else text_of(found).encode()

    def values(self) -> dict[str, str] | None:
        """None where the configuration is kept in a file."""
        return self._manager.scheduler_conf(self._user)

    def write(self, data: bytes | None) -> None:
        """Raises BadInput with the ResourceManager's objection."""
        if data is None:
            raise BadInput("a scheduler's configuration cannot be taken away", where=self.name)
        current = self.values()
        if current is None:
            raise BadInput("is kept in a file", where=self.name, remedy="edit capacity-scheduler.xml instead")
        try:
            for step in edits(current, parse(data.decode())):
                self._manager.edit_scheduler(step, self._user)
        except PortError as error:
            raise BadInput(error.text, where=self.name, remedy=getattr(error, "remedy", "")) from None


def text_of(values: Mapping[str, str]) -> str:
    shown = {key: _sorted_list(key, value) for key, value in values.items()}
    return "".join(f"{key} = {shown[key]}\n" for key in sorted(shown))


def parse(text: str) -> dict[str, str]:
    lines = (line.partition(" = ") for line in text.splitlines() if line.strip())
    return {key.strip(): value for key, _, value in lines}


def queue_paths(values: Mapping[str, str]) -> list[str]:
    """All queues of a configuration, parents first."""
    found, waiting = [], ["root"]
    while waiting:
        path = waiting.pop(0)
        found.append(path)
        children = values.get(f"{PREFIX}{path}.queues", "")
        waiting += [f"{path}.{name.strip()}" for name in children.split(",") if name.strip()]
    return found


def edits(current: Mapping[str, str], wanted: Mapping[str, str]) -> list[QueueEdits]:
    """The transactions that turn one configuration into the other."""
    now, then = queue_paths(current), queue_paths(wanted)
    paths = set(now) | set(then)
    gone = [path for path in reversed(now) if path not in then]
    add: dict[str, dict[str, str | None]] = {path: {} for path in then if path not in now}
    update: dict[str, dict[str, str | None]] = {}
    plain: dict[str, str | None] = {}
    differ = {key for key, _ in current.items() ^ wanted.items()}
    for key in sorted(differ):
        path = _queue_of(key, paths)
        if path is None:
            plain[key] = wanted.get(key)
        elif path not in gone:
            parameter = key.removeprefix(f"{PREFIX}{path}.")
            if parameter != "queues":
                (add if path in add else update).setdefault(path, {})[parameter] = wanted.get(key)
    steps = [QueueEdits(update={path: {"state": "STOPPED"} for path in gone})] if gone else []
    if any((gone, add, update, plain)):
        steps.append(QueueEdits(add=add, update=update, remove=gone, globals=plain))
    return steps


def _queue_of(key: str, paths: set[str]) -> str | None:
    """The longest queue whose property it is; parameters have dots of their own."""
    fitting = [path for path in paths if key.startswith(f"{PREFIX}{path}.")]
    return max(fitting, key=len, default=None)


def _sorted_list(key: str, value: str) -> str:
    """The ResourceManager keeps children in no order."""
    if key.endswith(".queues"):
        return ",".join(sorted(name.strip() for name in value.split(",") if name.strip()))
    return value
