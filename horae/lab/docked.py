"""A lab of containers: one image or several, a role a container, all of them on a network of their own.

Names are `horae-KIND-NAME-ROLE`; every role is known to the others by its name, and everything carries the lab's
label, by which it is found and removed, also after a crash. Nothing needs --privileged.
"""

from __future__ import annotations

import io
import secrets
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.lab import LabState, engine
from policy.model import BadInput

if TYPE_CHECKING:
    from docker.types import Mount


_KEEPING = '"$@" >"$0" 2>&1; code=$?; cat "$0"; printf %s "$0"; exit $code'


def run_in(container: Any, argv: Sequence[str], user: str = "root", **env: str) -> tuple[int, str]:
    """(exit code, stdout and stderr together) of a command in a container, all of its output or an error.

    Engines at times answer with the exit code and nothing of what was written (moby#27289; with 20.10 on a machine at
    load 10, one call of five, and up to four one after the other). So a shell keeps the output in a file whose name it
    writes last: without that, the file itself is fetched, and never is the command run again.

    Raises BadInput where the output does not come.
    """
    kept = f"/tmp/horae-{secrets.token_hex(8)}"
    with_locale = {"LC_ALL": "C", **env}
    done = container.exec_run(["sh", "-c", _KEEPING, kept, *argv], user=user, environment=with_locale)
    output: bytes = done.output
    if output.endswith(kept.encode()):
        return int(done.exit_code), output[: -len(kept)].decode(errors="replace")
    found = _fetched(container, kept) if done.exit_code is not None else None
    if found is None:
        raise BadInput(f"what {' '.join(argv)} wrote did not come, it ended with {done.exit_code}", where="Docker")
    return int(done.exit_code), found.decode(errors="replace")


def _fetched(container: Any, path: str) -> bytes | None:
    """A file of a container, by another way than a command's output."""
    from docker.errors import APIError

    try:
        parts, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
            member = archive.next()
            file = archive.extractfile(member) if member is not None else None
            return file.read() if file is not None else None
    except (APIError, tarfile.TarError):
        return None


class DockedLab:
    """What labs of containers share. `folder` is the lab's own on the host: containers see parts of it."""

    kind = ""

    def __init__(self, name: str, folder: Path, say: Callable[[str], None]) -> None:
        self.name, self.folder, self._say = name, folder.absolute(), say
        self._client: Any = None

    @property
    def mark(self) -> str:
        """The label's value: labs of two kinds may have the same name."""
        return f"{self.kind}-{self.name}"

    @property
    def client(self) -> Any:
        """Raises BadInput where no engine answers and none can be started."""
        if self._client is None:
            self._client = engine.engine(self._say)
        return self._client

    def down(self) -> LabState:
        if not engine.answers():
            return LabState(self.name, False, "down; no Docker engine answers, so none of its containers runs")
        removed = engine.clean(self.client, self.mark)
        shutil.rmtree(self.folder, ignore_errors=True)
        return LabState(self.name, False, f"down; {removed} containers, networks and volumes removed")

    # --- pieces: bad days need them ---

    def container(self, role: str) -> Any:
        """Raises docker.errors.NotFound."""
        return self.client.containers.get(f"horae-{self.mark}-{role}")

    def address(self, role: str) -> str:
        container = self.container(role)
        networks = container.attrs["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    def exec(self, role: str, argv: Sequence[str], user: str = "root", **env: str) -> tuple[int, str]:
        """(exit code, stdout and stderr together) of a command in a container."""
        return run_in(self.container(role), argv, user, **env)

    def must(self, role: str, argv: Sequence[str], user: str = "root", **env: str) -> str:
        code, text = self.exec(role, argv, user, **env)
        if code != 0:
            raise BadInput(f"{' '.join(argv)} in {role} ends with {code}: {text.strip()[:400]}", where=self.name)
        return text.strip()

    # --- for the kinds ---

    def _state_of(self, role: str) -> str:
        """Docker's word for a container: running, exited...; empty where there is none, or no engine."""
        if not engine.answers():
            return ""
        from docker.errors import NotFound

        try:
            return str(self.container(role).status)
        except NotFound:
            return ""

    def _network(self) -> str:
        made = self.client.networks.create(f"horae-{self.mark}", labels=engine.labels(self.mark, kind=self.kind))
        return str(made.name)

    def _run(
        self, network: str, role: str, image: str, command: Sequence[str], env: Mapping[str, str] | None = None,
        mounts: Sequence[Mount] = (), **more: Any,
    ) -> None:  # fmt: skip
        """Start a container that the others know by its role."""
        container = self.client.containers.create(
            image, list(command), name=f"horae-{self.mark}-{role}", hostname=role, init=True, detach=True,
            mounts=list(mounts), labels=engine.labels(self.mark, kind=self.kind, role=role),
            environment=dict(env or {}), **more,
        )  # fmt: skip
        self.client.networks.get("bridge").disconnect(container)
        self.client.networks.get(network).connect(container, aliases=[role])
        container.start()
