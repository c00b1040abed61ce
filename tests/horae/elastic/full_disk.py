"""A full disk for one process, for every user: `python full_disk.py FLAG FOLDER PROGRAM ARGUMENTS...`.

While the file FLAG exists, this process (and what it forks without executing) cannot write new data below FOLDER:
`os.write` fails with ENOSPC. Blocks a file already has can be written over, as on a real full disk. This stands at
the boundary to the operating system; nothing of the program is replaced.
"""

import errno
import fcntl
import os
import runpy
import sys
from pathlib import Path

_write = os.write


def install(flag: str, folder: str) -> None:
    def write(fd: int, data: bytes) -> int:
        if Path(flag).exists() and _new_blocks(fd, folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _write(fd, data)

    os.write = write


def _new_blocks(fd: int, folder: str) -> bool:
    try:
        path = Path(f"/proc/self/fd/{fd}").readlink()
    except OSError:
        return False
    if not path.is_relative_to(folder) or not path.is_file():
        return False
    appends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
    return bool(appends) or os.lseek(fd, 0, os.SEEK_CUR) >= os.fstat(fd).st_size


if __name__ == "__main__":
    install(sys.argv[1], sys.argv[2])
    sys.argv = sys.argv[3:]
    runpy.run_path(sys.argv[0], run_name="__main__")
