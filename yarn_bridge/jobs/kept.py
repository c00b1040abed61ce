"""What the bridge knows of its jobs, where nobody but the bridge can write: ROOT/kept, mode 700.

    kept/records/JOB      whose it is, what it was granted, how far it has come: a `Record`
    kept/specs/JOB        what was asked for when it was handed in

A job's own folder belongs to its owner, who may put anything there. So nothing in it says whose a job is, what it
holds, in which queue it runs or how large it may be: that is here. Folders of the version before have no such
account: `adopt` makes it once, of those whose contents agree with the owner whom HDFS tells, and what appears
in `jobs/` after that is nobody's job.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import TypeVar

from horae import spec_json
from horae.port import FixConfiguration, JobId
from horae.spec import JobSpec
from yarn_bridge.clients.errors import Exists
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.jobs.record import Record, TooNew, decode_kept, encode_kept

T = TypeVar("T")
RECORDS, SPECS = "records", "specs"


class Unreadable(FixConfiguration):
    """What is kept of a job was damaged, or written by a newer Horae: never taken for no job."""


class Kept:
    def __init__(self, hdfs: Hdfs, root: str) -> None:
        self._hdfs, self.path = hdfs, f"{root}/kept"
        self._there = False
        self._small: set[JobId] = set()  #: records that fit one attribute as they are in HDFS

    def there(self) -> bool:
        """Whether it was ever made: False on a root of the version before."""
        self._there = self._there or self._hdfs.status(self.path) is not None
        return self._there

    def adopt(self, jobs: Iterable[tuple[Record, JobSpec]]) -> None:
        """Begin with these; whole or not at all. Somebody else's beginning is as good."""
        made = f"{self.path}.new-{secrets.token_hex(4)}"
        self._hdfs.make_folder(made, "700")
        for name in (RECORDS, SPECS):
            self._hdfs.make_folder(f"{made}/{name}", "700")
        for record, spec in jobs:
            self._hdfs.keep_document(f"{made}/{SPECS}/{record.job}", spec_json.encode(spec), f"{made}/{SPECS}")
            self._hdfs.keep_document(f"{made}/{RECORDS}/{record.job}", encode_kept(record), f"{made}/{RECORDS}")
        try:
            self._hdfs.rename(made, self.path)
        except Exists:
            self._hdfs.delete(made)
        self._there = True

    def record(self, job: JobId) -> Record | None:
        """Raises Unreadable."""
        return self._read(f"{self.path}/{RECORDS}/{job}", decode_kept)

    def spec(self, job: JobId) -> JobSpec | None:
        """Raises Unreadable."""
        return self._read(f"{self.path}/{SPECS}/{job}", spec_json.decode)

    def _read(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        data = self._hdfs.document(path)
        try:
            return None if data is None else decode(data)
        except TooNew as error:
            raise Unreadable(f"{path} {error}", "run the newer Horae") from None
        except ValueError as error:
            remedy = "put back a copy of it; until then its job is left as it is"
            raise Unreadable(f"{path} cannot be read: {error}", remedy) from None

    def jobs(self) -> list[JobId]:
        """All that were ever handed in."""
        return [each.name for each in self._hdfs.entries(f"{self.path}/{RECORDS}")]

    def add(self, record: Record, spec: JobSpec) -> None:
        """The record last: a specification alone is nobody's job. Raises Exists where the job is known."""
        specs, records = f"{self.path}/{SPECS}", f"{self.path}/{RECORDS}"
        self._hdfs.keep_document(f"{specs}/{record.job}", spec_json.encode(spec), specs)
        self._hdfs.keep_document(f"{records}/{record.job}", encode_kept(record), records, replace=False)

    def keep(self, record: Record) -> None:
        records = f"{self.path}/{RECORDS}"
        path, data = f"{records}/{record.job}", encode_kept(record)
        if record.job in self._small and self._hdfs.overwrite_document(path, data):
            return
        self._hdfs.keep_document(path, data, records)
        if self._hdfs.fits_one(data):
            self._small.add(record.job)
        else:
            self._small.discard(record.job)
