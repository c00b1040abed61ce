"""Where a job's data, checkpoints and model are, and the commands that name them."""

from __future__ import annotations

from horae.elastic.stores.store import HDFS_SCHEMES
from yarn_bridge.submarine.given import Given, Wanted

_PATHS = ("input_path", "checkpoint_path", "saved_model_path")


class Paths:
    def __init__(self, wanted: Wanted, staging: str, notes: dict[str, str]) -> None:
        """`notes`: grows by what is to be said of an option."""
        self._wanted = wanted
        self._staging = staging
        self._notes = notes

    def of(self, name: str) -> str | None:
        text = self._wanted.text(name)
        if text is not None or name == "input_path":
            return text
        if name == "saved_model_path":
            return self.of("checkpoint_path")
        return f"{self._staging}/checkpoint_path"

    def filled(self, given: Given) -> str:
        """A command with its paths in it. Raises BadInput."""
        command = given.value
        for name in _PATHS:
            path = self.of(name)
            if f"%{name}%" in command and path is None:
                raise given.bad(f"uses %{name}%, which is not given", f"add --{name}")
            command = command.replace(f"%{name}%", path or "")
        return command

    def checkpoint(self) -> str:
        """Of an elastic job. Raises BadInput."""
        path = self.of("checkpoint_path")
        assert path is not None
        given = self._wanted.get("checkpoint_path")
        scheme = path.partition("://")[0] if "://" in path else ""
        if given is None or self._wanted.has("self_checkpointing"):
            return path
        if scheme and scheme not in HDFS_SCHEMES:
            raise given.bad(
                f"the SDK keeps no checkpoints in {scheme}://",
                "a path in HDFS, or --self_checkpointing if the command keeps its own",
            )
        if not scheme and not path.startswith("/"):
            raise given.bad("a relative path is another folder in each container", "hdfs:///..., or a shared folder")
        if not scheme:
            self._notes["checkpoint_path"] = "must be a folder that every node shares, or hdfs:///..."
        return path
