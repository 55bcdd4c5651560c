"""Which files some process on this machine has open for writing, and whether it can only append to them.

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


def open_for_writing(candidates: Collection[FileId]) -> dict[FileId, bool]:
    """Those of some files (device, inode) that another process has open for writing, and whether all only append."""
    wanted = set(candidates)
    found: dict[FileId, bool] = {}
    if not wanted:
        return found
    own = str(os.getpid())
    for process in os.listdir("/proc"):
        if process.isdigit() and process != own:
            for file, appends in _written_by(process, wanted):
                found[file] = appends and found.get(file, True)
    return found


def _written_by(process: str, wanted: set[FileId]) -> Iterator[tuple[FileId, bool]]:
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
            if file in wanted:
                flags = _flags(process, descriptor)
                if flags & _ACCESS != _READS_ONLY:
                    yield file, bool(flags & os.O_APPEND)
        except OSError:
            continue  # closed meanwhile


def _flags(process: str, descriptor: str) -> int:
    with open(f"/proc/{process}/fdinfo/{descriptor}") as fields:
        for line in fields:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return _READS_ONLY
