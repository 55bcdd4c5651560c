"""Which files some process on this machine has open for writing.

Decides by the kernel's tables alone: a file is told by device and inode, because a sandboxed job sees it under another
path. What this user may not look into is taken as closed. A mapping that outlives its descriptor is not seen. Must
not know what the files are.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

FileId = tuple[int, int]

_READS_ONLY = os.O_RDONLY
_ACCESS = os.O_ACCMODE


def open_for_writing(candidates: Collection[FileId]) -> set[FileId]:
    """Those of some files (device, inode) that are open for writing in a process other than this one."""
    wanted = set(candidates)
    found: set[FileId] = set()
    if not wanted:
        return found
    own = str(os.getpid())
    for process in os.listdir("/proc"):
        if process.isdigit() and process != own:
            found.update(_written_by(process, wanted))
            if found == wanted:
                break
    return found


def _written_by(process: str, wanted: set[FileId]) -> Iterator[FileId]:
    try:
        descriptors = os.listdir(f"/proc/{process}/fd")
    except OSError:
        return  # ended, or not ours to look into
    for descriptor in descriptors:
        link = f"/proc/{process}/fd/{descriptor}"
        try:
            target = os.readlink(link)
            if not target.startswith("/") or target.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")):
                continue
            status = os.stat(link)
            file = (status.st_dev, status.st_ino)
            if file in wanted and _is_writable(process, descriptor):
                yield file
        except OSError:
            continue  # closed meanwhile


def _is_writable(process: str, descriptor: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{descriptor}") as fields:
        for line in fields:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & _ACCESS != _READS_ONLY
    return False
