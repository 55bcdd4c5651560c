"""Which files some process on this machine has open for writing, and whether it can only append to them.

Decides by the kernel's tables alone: a file is told by device and inode, because a sandboxed job sees it under another
path. What this user may not look into is taken as closed. A mapping that outlives its descriptor is not seen. Must
not know what the files are, and must not ask a file system that has none of them: the server of an unrelated network
file system may never answer.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

FileId = tuple[int, int]

_READS_ONLY = os.O_RDONLY
_ACCESS = os.O_ACCMODE
#: File systems that ask a server, which may not answer. Their files have the device that the mount table names.
_ASKS_A_SERVER = (
    "fuse",
    "nfs",
    "cifs",
    "smb",
    "9p",
    "virtiofs",
    "ceph",
    "lustre",
    "afs",
    "beegfs",
    "gpfs",
    "orangefs",
)


def open_for_writing(candidates: Collection[FileId]) -> dict[FileId, bool]:
    """Those of some files (device, inode) that another process has open for writing, and whether all only append."""
    wanted = set(candidates)
    found: dict[FileId, bool] = {}
    if not wanted:
        return found
    own = str(os.getpid())
    mounts = _Mounts()
    for process in os.listdir("/proc"):
        if process.isdigit() and process != own:
            for file, appends in _written_by(process, wanted, mounts):
                found[file] = appends and found.get(file, True)
    return found


def server_mounts(mountinfo: str) -> dict[int, int | None]:
    """Every mount of a mount table by its id: the device of one that asks a server, None for a local one."""
    mounts: dict[int, int | None] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        major, _, minor = fields[2].partition(":")
        asks = after.startswith(_ASKS_A_SERVER)
        mounts[int(fields[0])] = os.makedev(int(major), int(minor)) if asks else None
    return mounts


@dataclass(slots=True)
class _Mounts:
    """The mounts seen so far; their ids are the same in all mount namespaces."""

    known: dict[int, int | None] = field(default_factory=dict)

    def device(self, process: str, mount: int) -> int | None:
        """The device of a process's mount that asks a server; None for a local or hidden one."""
        if mount not in self.known:
            with open(f"/proc/{process}/mountinfo", errors="replace") as table:
                self.known |= server_mounts(table.read())
            self.known.setdefault(mount, None)
        return self.known[mount]


def _written_by(process: str, wanted: set[FileId], mounts: _Mounts) -> Iterator[tuple[FileId, bool]]:
    try:
        descriptors = os.listdir(f"/proc/{process}/fd")
    except OSError:
        return  # ended, or not ours to look into
    devices = {device for device, _ in wanted}
    for descriptor in descriptors:
        link = f"/proc/{process}/fd/{descriptor}"
        try:
            target = os.readlink(link)
            if not target.startswith("/") or target.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")):
                continue
            flags, mount = _opened(process, descriptor)
            if flags & _ACCESS == _READS_ONLY:
                continue
            server = mounts.device(process, mount)
            if server is not None and server not in devices:
                continue
            status = os.stat(link)
            file = (status.st_dev, status.st_ino)
            if file in wanted:
                yield file, bool(flags & os.O_APPEND)
        except OSError:
            continue  # closed meanwhile


def _opened(process: str, descriptor: str) -> tuple[int, int]:
    """The flags that a descriptor was opened with, and the id of its mount."""
    with open(f"/proc/{process}/fdinfo/{descriptor}") as lines:
        fields = dict(line.split(":", 1) for line in lines if line.startswith(("flags:", "mnt_id:")))
    return int(fields.get("flags", "0"), 8), int(fields.get("mnt_id", "-1"))
