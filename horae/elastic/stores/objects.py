"""Checkpoints in an object store, by fsspec in the job's own environment.

    s3://bucket/checkpoints    s3a://... (Hadoop's name for the same)    s3fs
    gs://bucket/checkpoints                                              gcsfs
    abfs://container@account/checkpoints                                 adlfs

Nothing is renamed there, and nothing appears at once but a single object. So an entry's files are put under its name,
and its manifest last, once the fence was asked: what has no manifest is no checkpoint. A deletion takes the manifest
first. Who asks, and where the store is, the driver finds in its usual places (`AWS_ACCESS_KEY_ID`, an instance's role,
`FSSPEC_S3_ENDPOINT_URL`).
"""

import os
import shutil
from typing import Any, Callable, Dict, List, Optional

from .checkpoints import MANIFEST
from .store import Store, scratch, sizes_of

#: scheme -> what fsspec calls it, and the package that brings it
SCHEMES = {
    "s3": ("s3", "s3fs"),
    "s3a": ("s3", "s3fs"),
    "gs": ("gs", "gcsfs"),
    "abfs": ("abfs", "adlfs"),
    "abfss": ("abfs", "adlfs"),
}


class ObjectStore(Store):
    """Every failure of the driver's is an OSError."""

    def __init__(self, url: str) -> None:
        self.url = url
        scheme, _, rest = url.partition("://")
        self._root = rest.strip("/")
        if not self._root:
            raise ValueError("%s names no bucket" % url)
        self._files = _driver(scheme)

    def entries(self) -> List[str]:
        return [name for name in self._below() if not name.startswith(".")]

    def read(self, entry: str, name: str) -> Optional[bytes]:
        try:
            return bytes(self._ask("reading %s of %s" % (name, entry), self._files.cat_file, self._at(entry, name)))
        except FileNotFoundError:
            return None

    def sizes(self, entry: str) -> Dict[str, int]:
        prefix = self._at(entry) + "/"
        found = self._ask("listing %s" % entry, self._files.find, prefix, detail=True)
        return {str(path).split(prefix, 1)[1]: int(each["size"]) for path, each in found.items()}

    def fetch(self, entry: str) -> str:
        folder = scratch("fetch")
        try:
            for path in self.sizes(entry):
                local = os.path.join(folder, path)
                os.makedirs(os.path.dirname(local), exist_ok=True)
                self._ask("reading %s of %s" % (path, entry), self._files.get_file, self._at(entry, path), local)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def done(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def begin(self, entry: str) -> str:
        return scratch(entry)

    def publish(self, folder: str, entry: str, last_check: Callable[[], None]) -> None:
        try:
            for path in sorted(sizes_of(folder), key=lambda path: path == MANIFEST):
                if path == MANIFEST:
                    last_check()
                local = os.path.join(folder, path)
                self._ask("writing %s of %s" % (path, entry), self._files.put_file, local, self._at(entry, path))
        except BaseException:
            self._forget(entry)
            raise
        shutil.rmtree(folder, ignore_errors=True)

    def abandon(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def delete(self, entry: str) -> None:
        paths = sorted(self.sizes(entry), key=lambda path: path != MANIFEST)
        for path in paths:
            self._ask("deleting %s of %s" % (path, entry), self._files.rm_file, self._at(entry, path))

    def sweep(self) -> List[str]:
        left = [name for name in self.entries() if MANIFEST not in self.sizes(name)]
        for name in left:
            self.delete(name)
        return left

    def _forget(self, entry: str) -> None:
        """Half of an entry; where even that fails the next start sweeps it."""
        try:
            self.delete(entry)
        except OSError as error:
            print("[horae] half of %s is left in %s: %s" % (entry, self.url, error), flush=True)

    def _below(self) -> List[str]:
        try:
            found = self._ask("listing", self._files.ls, self._root, detail=True)
        except FileNotFoundError:
            return []
        return sorted(
            {str(each["name"]).rstrip("/").rpartition("/")[2] for each in found if each["type"] == "directory"}
        )

    def _at(self, *names: str) -> str:
        return "/".join((self._root,) + names)

    def _ask(self, doing: str, verb: Callable[..., Any], *what: Any, **how: Any) -> Any:
        """Raises OSError, whatever the driver raises; FileNotFoundError for what is not there."""
        try:
            return verb(*what, **how)
        except OSError:
            raise
        except Exception as error:
            raise OSError("%s: %s: %s: %s" % (self.url, doing, type(error).__name__, error)) from error


def _driver(scheme: str) -> Any:
    """fsspec's filesystem. Raises ValueError where this Python lacks it."""
    name, package = SCHEMES[scheme]
    try:
        import fsspec

        return fsspec.filesystem(name, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise ValueError(
            "checkpoints under %s:// need %s in the job's environment (pip install %s): %s"
            % (scheme, package, package, error)
        ) from None
