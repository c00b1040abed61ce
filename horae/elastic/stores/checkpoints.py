"""Checkpoints that are whole or not there.

An entry of the store is named after its step and the epoch of the start that wrote it. Beside the user's files it
holds `horae.json`: the SDK's own position, and size and checksum of every file, with a checksum over itself. A
checkpoint is *complete* when its name is there and all sums hold. The newest is the one of the highest epoch, then
step: what a start of an older epoch still manages to publish never hides what a newer one wrote.

Beside the sums stands which files they were taken of (inode and time of its last change, of this boot of this machine).
Files that are still those were touched by nobody, and no power was cut: they can be read while they are verified.
"""

import hashlib
import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ..files import read_bytes, sync_folder, write_all
from .beside import Beside
from .store import Store, sizes_of

MANIFEST = "horae.json"
_FORMAT = 1
_TOO_NEW = "%s: %s is of a newer form (%d; this SDK reads %d): train with the newer horae.elastic, or move it away"
_BOOT = "/proc/sys/kernel/random/boot_id"
_NAME = re.compile(r"step-(\d{12})\.epoch-(\d{8})$")


class Superseded(Exception):
    """A newer start of this job exists: this one may not publish anything."""


class Mark(NamedTuple):
    """A checkpoint's place in the order of all of a job's checkpoints."""

    epoch: int
    step: int
    name: str


class Damaged(Exception):
    """A checkpoint that is not complete; the text says what is wrong with it."""


class NewerForm(Damaged):
    """A checkpoint that is whole, of a form that a newer SDK writes: nobody begins without it, or throws it away.

    In every form the manifest has `check`, `format` and `time_s` as they are here."""

    def __init__(self, text: str, time_s: float) -> None:
        super().__init__(text)
        self.time_s = time_s


def name_of(step: int, epoch: int) -> str:
    return "step-%012d.epoch-%08d" % (step, epoch)


def marks(store: Store) -> List[Mark]:
    """All published checkpoints, newest first, complete or not."""
    found = []
    for name in store.entries():
        match = _NAME.match(name)
        if match:
            found.append(Mark(int(match.group(2)), int(match.group(1)), name))
    return sorted(found, reverse=True)


def manifest(store: Store, name: str) -> Dict[str, Any]:
    """The SDK's account of a checkpoint, with every file's size compared. Raises Damaged.

    Reads no user data: this is what the supervisor can afford, while `verified` is for whoever loads.
    """
    try:
        data = store.read(name, MANIFEST)
        if data is None:
            raise Damaged("%s has no %s" % (name, MANIFEST))
        try:
            value = json.loads(data.decode())
            claimed = value.pop("check")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Damaged("%s: %s cannot be read" % (name, MANIFEST)) from None
        if claimed != _check(value):
            raise Damaged("%s: %s does not match its own checksum" % (name, MANIFEST))
        form = value.get("format")
        if isinstance(form, int) and form > _FORMAT:
            raise NewerForm(_TOO_NEW % (name, MANIFEST, form, _FORMAT), _seconds(value.get("time_s")))
        files = _files(name, value)
        sizes = store.sizes(name)
    except OSError as error:
        raise Damaged("%s: %s" % (name, error)) from None
    for path, size in files.items():
        if path not in sizes:
            raise Damaged("%s: %s is missing" % (name, path))
        if sizes[path] != size:
            raise Damaged("%s: %s has %d bytes, not %d" % (name, path, sizes[path], size))
    return dict(value)


def _files(name: str, value: Dict[str, Any]) -> Dict[str, int]:
    """Size of each. Raises Damaged."""
    form = value.get("format")
    if form != _FORMAT:
        raise Damaged("%s: format %r, this SDK reads %d" % (name, form, _FORMAT))
    try:
        return {str(path): int(each["size"]) for path, each in value["files"].items() if each["blake2b"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged("%s: %s cannot be read" % (name, MANIFEST)) from None


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def newest_mark(store: Store) -> Optional[Tuple[Mark, float]]:
    """The newest checkpoint that looks complete (manifest and sizes), and when it was written."""
    listed: Optional[List[Mark]] = None
    while True:
        # A job that writes meanwhile also removes what was listed: none is only believed of a list that still holds.
        before, listed = listed, marks(store)
        if not listed or listed == before:
            return None
        for mark in listed:
            try:
                return mark, _seconds(manifest(store, mark.name).get("time_s"))
            except NewerForm as newer:
                return mark, newer.time_s
            except Damaged:
                continue


def verify_files(folder: str, account: Dict[str, Any]) -> None:
    """Compare every file's checksum. Raises Damaged."""
    for path, expected in sorted(account["files"].items()):
        try:
            found = checksum(os.path.join(folder, path))
        except OSError as error:
            raise Damaged("%s: %s" % (path, error)) from None
        if found != expected["blake2b"]:
            raise Damaged("%s does not match its checksum" % path)


def whole(folder: str, account: Dict[str, Any], say: Callable[[str], None]) -> bool:
    """Whether all sums hold; `say` hears why not."""
    try:
        verify_files(folder, account)
    except Damaged as damage:
        say("checkpoint passed over: %s: %s" % (name_of(account["step"], account["epoch"]), damage))
        return False
    return True


def untouched(folder: str, account: Dict[str, Any]) -> bool:
    """Whether these are the very files that were written, and nobody changed them since."""
    written = account.get("written")
    try:
        return bool(written) and written == _written(folder, account["files"])
    except OSError:
        return False


def _written(folder: str, paths: Iterable[str]) -> Optional[Dict[str, Any]]:
    """What becomes another when a file is changed or copied, or the machine starts anew; None where that is not known.
    Raises OSError."""
    boot = read_bytes(_BOOT, 64)
    if not boot:
        return None
    found = {path: os.stat(os.path.join(folder, path)) for path in paths}
    return {
        "boot": boot.decode(errors="replace").strip(),
        "files": {path: [each.st_ino, each.st_ctime_ns] for path, each in found.items()},
    }


def readable(store: Store, say: Callable[[str], None]) -> Iterator[Tuple[Mark, Dict[str, Any], str]]:
    """(mark, manifest, local folder) of what looks complete, newest first; `say` hears of each one passed over.

    Raises NewerForm."""
    for mark in marks(store):
        try:
            yield mark, manifest(store, mark.name), store.fetch(mark.name)
        except NewerForm:
            raise
        except (Damaged, OSError) as damage:
            say("checkpoint passed over: %s" % damage)


def complete(store: Store, say: Callable[[str], None]) -> Iterator[Tuple[Mark, Dict[str, Any], str]]:
    """Those of `readable` whose sums hold."""
    for mark, account, folder in readable(store, say):
        if whole(folder, account, say):
            yield mark, account, folder
        else:
            store.done(folder)


def write(
    store: Store,
    step: int,
    epoch: int,
    account: Dict[str, Any],
    fill: Callable[[str], None],
    last_check: Callable[[], None],
) -> Mark:
    """Make one complete checkpoint: `fill(folder)` writes the user's files. Raises OSError or Superseded.

    Whatever is raised, nothing half-made keeps a checkpoint's name.
    """
    name = name_of(step, epoch)
    if name in store.entries():
        # A failed run of this same start came as far before. Whole, it is as good as a new one.
        try:
            manifest(store, name)
            return Mark(epoch, step, name)
        except NewerForm:
            return Mark(epoch, step, name)
        except Damaged:
            store.delete(name)
    folder = _begun(store, name)
    try:
        fill(folder)
        value = dict(account, format=_FORMAT, step=step, epoch=epoch, time_s=time.time())
        settling = Beside(lambda: store.settle(folder))
        try:
            value["files"] = {
                path: {"size": size, "blake2b": checksum(os.path.join(folder, path))}
                for path, size in sorted(sizes_of(folder).items())
            }
        finally:
            settling.over()
        value["written"] = _written(folder, value["files"])
        value["check"] = _check(value)
        fd = os.open(os.path.join(folder, MANIFEST), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            write_all(fd, json.dumps(value, sort_keys=True).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(folder)
        store.publish(folder, name, last_check)
    except BaseException:
        store.abandon(folder)
        raise
    return Mark(epoch, step, name)


def _begun(store: Store, name: str) -> str:
    """Raises OSError, which names the store: the folder made in it is another at each try."""
    try:
        return store.begin(name)
    except OSError as error:
        if error.filename is not None:
            error.filename = store.url
        raise


def prune(store: Store, keep: int) -> List[str]:
    """Delete what is older than the newest `keep` checkpoints that look complete (at least one); returns what went."""
    doomed = []
    kept = 0
    for mark in marks(store):
        if kept >= max(1, keep):
            doomed.append(mark.name)
            continue
        try:
            manifest(store, mark.name)
            kept += 1
        except NewerForm:
            kept += 1
        except Damaged:
            continue
    for name in doomed:
        store.delete(name)
    return doomed


def checksum(path: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while True:
            piece = file.read(1 << 20)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)


def _check(value: Dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
