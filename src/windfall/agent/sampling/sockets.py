"""How many bytes each process's TCP connections have carried, asked of the kernel by netlink (sock_diag).

Needed where attempts share the host's network, which is how processes run. Decides how the kernel's answer is read and
whose a connection is. One that opens and closes between two looks is never seen, and UDP is not counted: what an
attempt is said to have received is a lower bound. Must not know attempts but by the name they are given here.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

_SOCK_DIAG = 4
_DUMP = 0x301
_BY_FAMILY = 20
_ERROR, _DONE = 2, 3
_INFO = 2
#: All states but LISTEN, TIME_WAIT, SYN_RECV and CLOSE, in which nothing is carried.
_STATES = 0xFFF & ~((1 << 10) | (1 << 6) | (1 << 3) | (1 << 7))
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_OWNER = struct.Struct("=II")
#: Where uid and inode are in an answer, where its attributes begin, and where tcp_info has what was acknowledged and
#: received.
_OWNER_AT, _ATTRIBUTES_AT, _CARRIED_AT = 64, 72, 120
_CARRIED = struct.Struct("=QQ")
#: Processes whose open files are looked through in one round for the owners of new connections.
_PROCESSES_A_ROUND = 32


class Carried(NamedTuple):
    """One connection."""

    inode: int
    uid: int
    sent: int
    received: int


def connections() -> list[Carried] | None:
    """Return all TCP connections of this network namespace; None where the kernel does not tell."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
            link.settimeout(1.0)
            found: list[Carried] = []
            for family in (socket.AF_INET, socket.AF_INET6):
                request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _STATES)
                request += bytes(48)
                link.send(_HEAD.pack(_HEAD.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
                while _take(link.recv(1 << 17), found):
                    pass
            return found
    except OSError:
        return None


def _take(answer: bytes, found: list[Carried]) -> bool:
    """Read one piece of an answer; False at its end."""
    offset = 0
    while offset + _HEAD.size <= len(answer):
        length, kind, _, _, _ = _HEAD.unpack_from(answer, offset)
        if kind == _ERROR:
            raise OSError("the kernel refused to list connections")
        if kind == _DONE or length < _HEAD.size:
            return False
        body = offset + _HEAD.size
        uid, inode = _OWNER.unpack_from(answer, body + _OWNER_AT)
        at = body + _ATTRIBUTES_AT
        while at + _ATTRIBUTE.size <= offset + length:
            size, name = _ATTRIBUTE.unpack_from(answer, at)
            if name == _INFO and size >= _CARRIED_AT + _CARRIED.size + 4:
                sent, received = _CARRIED.unpack_from(answer, at + 4 + _CARRIED_AT)
                found.append(Carried(inode, uid, sent, received))
            at += max(4, (size + 3) & ~3)
        offset += (length + 3) & ~3
    return True


def socket_inodes(pid: int) -> list[int] | None:
    """Return the inodes of the sockets that a process has open; None where that may not be known."""
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    found = []
    for name in names:
        try:
            target = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.append(int(target[8:-1]))
    return found


class Traffic:
    """The bytes that the connections of each owner have carried, from round to round."""

    def __init__(
        self,
        list_connections: Callable[[], list[Carried] | None] = connections,
        look: Callable[[int], list[int] | None] = socket_inodes,
    ) -> None:
        self._list_connections = list_connections
        self._look = look
        self._owners: dict[int, str] = {}
        self._carried: dict[int, tuple[int, int]] = {}
        #: Rounds in which nobody was found to own a connection.
        self._nobodys: dict[int, int] = {}
        self._turn = 0

    def measure(self, owners: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, int]] | None:
        """Return (received, sent) of each owner since the last look, given each one's processes; None: not known."""
        if not owners:
            self._carried.clear()
            self._owners.clear()
            return {}
        listed = self._list_connections()
        if listed is None:
            return None
        inodes = {one.inode for one in listed if one.inode}
        for known in (self._owners, self._carried, self._nobodys):
            for inode in [inode for inode in known if inode not in inodes]:
                del known[inode]
        unknown = {i for i in inodes if i not in self._owners and self._nobodys.get(i, 0) < 2}
        if unknown:
            self._find(unknown, owners)
        totals = dict.fromkeys(owners, (0, 0))
        for one in listed:
            owner = self._owners.get(one.inode)
            if owner in totals:
                received, sent = self._carried.get(one.inode, (0, 0))
                before = totals[owner]
                totals[owner] = (before[0] + one.received - received, before[1] + one.sent - sent)
                self._carried[one.inode] = (one.received, one.sent)
        return totals

    def _find(self, unknown: set[int], owners: Mapping[str, Iterable[int]]) -> None:
        """Look for the owners of connections; what does not fit into one round is found in a later one."""
        processes = [(owner, pid) for owner, pids in owners.items() for pid in pids]
        few = min(len(processes), _PROCESSES_A_ROUND)
        for number in range(few):
            owner, pid = processes[(self._turn + number) % len(processes)]
            for inode in self._look(pid) or ():
                if inode in unknown:
                    self._owners[inode] = owner
                    unknown.discard(inode)
            if not unknown:
                return
        self._turn += few
        if few < len(processes):
            return
        for inode in unknown:
            self._nobodys[inode] = self._nobodys.get(inode, 0) + 1
