"""What a job's containers get from elsewhere: files and folders, and the keytab of their owner."""

from __future__ import annotations

from collections.abc import Sequence

from policy.model import BadInput
from yarn_bridge.submarine import values
from yarn_bridge.submarine.given import Given, Wanted
from yarn_bridge.submarine.values import Localization, LocalPolicy

_KERBEROS = ("keytab", "principal", "distribute_keytab")


class LocalResources:
    def __init__(self, wanted: Wanted, local: LocalPolicy, notes: dict[str, str], home: str) -> None:
        """`notes`: grows by what is to be said of an option."""
        self._wanted = wanted
        self._local = local
        self._notes = notes
        self._home = home
        self._strict = local.strict
        self.uploads: tuple[Localization, ...] = ()  #: what is to be in HDFS before the job is handed in

    def items(self, docker: bool, resources: Sequence[str]) -> list[Localization]:
        """`resources`: by TonY's own setting. Raises BadInput."""
        found = self._localizations(docker)
        for given in self._wanted.all("conf"):
            if given.value.startswith("tony.containers.resources="):
                found += [self._resource(given, each) for each in resources]
                break
        self.uploads = tuple(each for each in found if each.upload)
        names = [each.name for each in found]
        if twice := {name for name in names if names.count(name) > 1}:
            raise BadInput(
                f"two files would be called {min(twice)}", field="--localization", remedy="rename one: ./NAME"
            )
        return found

    def _localizations(self, docker: bool) -> list[Localization]:
        found = []
        for item in self._wanted.all("localization"):
            one = values.localization(item, docker, self._local)
            if one is None:
                self._wanted.idle.append((item.field, item.value, "no effect: YARN cannot fetch it; put it into HDFS"))
            else:
                found.append(one)
                if one.note:
                    self._wanted.idle.append((item.field, item.value, f"changed: {one.note}"))
        return found

    def _resource(self, given: Given, source: str) -> Localization:
        path = source.partition("#")[0].partition("::")[0]
        if self._strict and path != source:
            raise given.bad(f"{source}: archives and new names are TonY's", f"write --localization {path}:./NAME")
        if self._strict:
            found = values.localization(
                Given(given.option, f"{source}:.", given.field, given.where, given.line), False, self._local
            )
            assert found is not None  # under --strict it is taken or refused
            return found
        one = values.resource(source, self._local)
        if one.note:
            self._wanted.idle.append((given.field, source, f"changed: {one.note}"))
        return one

    def kerberos(self) -> tuple[str | None, str | None]:
        """(principal, keytab) of the service."""
        given = [item for name in _KERBEROS if (item := self._wanted.get(name)) is not None]
        if not given:
            return None, None
        try:
            return self._keys(*(self._wanted.get(name) for name in _KERBEROS))
        except BadInput as error:
            if self._strict:
                raise
            for item in given:
                self._notes[item.option.name] = f"no effect: {error}"
            return None, None

    def _keys(self, path: Given | None, principal: Given | None, distribute: Given | None) -> tuple[str, str]:
        if path is None or principal is None:
            one = path or principal
            if one is None:
                assert distribute is not None  # one of the three is given
                raise distribute.bad("there is no keytab to distribute", "add --keytab and --principal, or take it out")
            raise one.bad(
                "a keytab and its principal go together", "add --keytab" if path is None else "add --principal"
            )
        if "@" not in principal.value or "/" not in principal.value.partition("@")[0]:
            raise principal.bad("is not user/host@REALM", "YARN Services take no other principal")
        return principal.value, values.keytab(path, distribute, self._home)
