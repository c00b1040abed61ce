"""Where checkpoints live: a folder, or another store registered under its URL scheme.

A store keeps *entries*: folders of files that appear whole or not at all. Writing is `begin` (a local folder to
write into), then `publish` (one atomic rename into place) or `abandon`. What a broken writer left is swept by the
next start.
"""

import os
import shutil
import sys
import tempfile
from typing import Callable, Dict, List, Optional, Set

from .. import protocol
from ..files import anybodys, owner_here, read_bytes, sync_folder

_TEMPORARY = ".tmp-"


class Store:
    """The interface. Entries are named by the caller; names that begin with a dot are the store's own."""

    url = ""
    #: Listing costs microseconds and never blocks, so the supervisor may look while the job runs.
    cheap = False

    def entries(self) -> List[str]:
        """Names of all published entries, whole or damaged. Empty when the store's folder does not exist."""
        raise OSError("this store cannot list")

    def read(self, entry: str, name: str) -> Optional[bytes]:
        """One small file of an entry, None when it is not there."""
        raise OSError("this store cannot read")

    def sizes(self, entry: str) -> Dict[str, int]:
        """Size in bytes of every file of an entry, by path within it."""
        raise OSError("this store cannot list")

    def fetch(self, entry: str) -> str:
        """A local folder with the entry's files. Give it to `done` after use."""
        raise OSError("this store cannot read")

    def done(self, folder: str) -> None:
        """The folder that `fetch` gave is no longer needed."""

    def begin(self, entry: str) -> str:
        """An empty local folder in which to make the entry."""
        raise OSError("this store cannot write")

    def settle(self, folder: str) -> None:
        """What `begin` gave is filled: what can be done of `publish` already. Called beside the checksums."""

    def publish(self, folder: str, entry: str, last_check: Callable[[], None]) -> None:
        """Make the entry visible at once and for good. `last_check` is called as late as can be and may raise."""
        raise OSError("this store cannot write")

    def abandon(self, folder: str) -> None:
        """Forget what `begin` gave."""
        raise OSError("this store cannot write")

    def delete(self, entry: str) -> None:
        raise OSError("this store cannot write")

    def sweep(self) -> List[str]:
        """Remove what broken writers left; returns it. Called by the one writer of a fresh start."""
        return []


class FolderStore(Store):
    """Entries are folders in a folder, on any POSIX filesystem."""

    cheap = True

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.url = self.path
        self._told: Set[str] = set()

    def entries(self) -> List[str]:
        return [name for name in self._believed() if not name.startswith(".")]

    def _believed(self) -> List[str]:
        """What lies there; where anybody may have put it, what is of who asks: a checkpoint can hold anything that its
        reader would run."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        strange = self._not_of((0, os.geteuid()), names)
        if not strange or not anybodys(self.path):
            return names
        strange = self._not_of((0, owner_here(self.path)), strange)
        for name in strange:
            if name not in self._told:
                self._told.add(name)
                words = (self.path, name)
                sys.stderr.write("[horae] %s/%s is passed over: another user's, where anybody may write\n" % words)
        return [name for name in names if name not in strange]

    def _not_of(self, owners: "tuple[int, int]", names: List[str]) -> List[str]:
        found = []
        for name in names:
            try:
                if os.lstat(os.path.join(self.path, name)).st_uid not in owners:
                    found.append(name)
            except FileNotFoundError:
                continue  # it is being moved
        return found

    def read(self, entry: str, name: str) -> Optional[bytes]:
        return read_bytes(os.path.join(self.path, entry, name), 16 << 20)

    def sizes(self, entry: str) -> Dict[str, int]:
        return sizes_of(os.path.join(self.path, entry))

    def fetch(self, entry: str) -> str:
        return os.path.join(self.path, entry)

    def begin(self, entry: str) -> str:
        os.makedirs(self.path, exist_ok=True)
        folder = os.path.join(self.path, "%s%s.%d.%s" % (_TEMPORARY, entry, os.getpid(), os.urandom(4).hex()))
        os.mkdir(folder)
        return folder

    def settle(self, folder: str) -> None:
        sync_tree(folder)

    def publish(self, folder: str, entry: str, last_check: Callable[[], None]) -> None:
        sync_tree(folder)
        last_check()
        os.rename(folder, os.path.join(self.path, entry))
        sync_folder(self.path)

    def abandon(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def delete(self, entry: str) -> None:
        # Renamed first: a deletion that is interrupted must not leave half an entry under its name.
        doomed = os.path.join(self.path, "%sold.%s.%s" % (_TEMPORARY, entry, os.urandom(4).hex()))
        try:
            os.rename(os.path.join(self.path, entry), doomed)
        except FileNotFoundError:
            return
        shutil.rmtree(doomed, ignore_errors=True)

    def sweep(self) -> List[str]:
        left = [name for name in self._believed() if name.startswith(_TEMPORARY)]
        for name in left:
            shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)
        return left


def sizes_of(folder: str) -> Dict[str, int]:
    """Size of every regular file below `folder`, by path relative to it."""
    found = {}
    for root, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            found[os.path.relpath(path, folder)] = os.stat(path).st_size
    return found


def scratch(name: str) -> str:
    """A new local folder for what is on its way to a store or from it; where the site says, it goes with the worker."""
    return tempfile.mkdtemp(prefix="horae-%s-" % name, dir=os.environ.get(protocol.ENV_SCRATCH) or None)


def sync_tree(folder: str) -> None:
    for root, _folders, names in os.walk(folder, topdown=False):
        for name in names:
            fd = os.open(os.path.join(root, name), os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(root)


#: of what `webhdfs.py` reaches
HDFS_SCHEMES = ("webhdfs", "swebhdfs", "hdfs", "viewfs")
_schemes: Dict[str, Callable[[str], Store]] = {}


def register_store(scheme: str, factory: Callable[[str], Store]) -> None:
    """Let checkpoints live under `scheme://...`: `factory(url)` makes the store."""
    _schemes[scheme] = factory


def open_store(url: str) -> Store:
    """The store behind a checkpoint folder or URL. Raises ValueError for a scheme nobody registered."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return FolderStore(url)
    if scheme == "file":
        return FolderStore(rest)
    if scheme not in _schemes and scheme in HDFS_SCHEMES:
        from . import webhdfs

        webhdfs.register()
    if scheme not in _schemes:
        from . import objects

        if scheme in objects.SCHEMES:
            return objects.ObjectStore(url)
        known = ", ".join(sorted(set(_schemes) | set(objects.SCHEMES) | {"file", *HDFS_SCHEMES}))
        raise ValueError("no checkpoint store for %s:// (known: %s)" % (scheme, known))
    return _schemes[scheme](url)
