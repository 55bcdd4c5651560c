"""How a process enters an attempt's place and takes no more rights there than the job has.

Called in a process that becomes the command, or starts it; there is no way back. Imported by the keeper: the standard
library alone.
"""

from __future__ import annotations

import ctypes
import os

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from windfall.agent.inside.place import Place

_CLONE = {
    "user": 0x10000000,
    "pid": 0x20000000,
    "mnt": 0x00020000,
    "ipc": 0x08000000,
    "net": 0x40000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def enter(place: Place, *names: str) -> None:
    """Enter those of the namespaces that the place has; raises OSError."""
    for name in names:
        if name in place.namespaces:
            _check(_libc.setns(place.namespaces[name], _CLONE[name]), f"enter the job's {name} namespace")


def adopt_orphans() -> None:
    """Have what a command leaves behind become a child of this process, so that it can be found and ended."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "adopt orphans")


def take_rights(place: Place, user: tuple[int, int, list[int]] | None) -> None:
    """Become the job's user (None: be it already), with the capabilities that the job can have; raises OSError."""
    # Until it is the command, the job may not look into it. Becoming another user would do this by itself.
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(_MOST_CAPABILITIES):
        if not place.bounding_capabilities >> capability & 1:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if user is not None:
        uid, gid, groups = user
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if os.geteuid() != 0:
        # A process that has entered a user namespace has every capability in it, and the job has none.
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "give up capabilities")
    if place.has_no_new_privileges:
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up the way to new privileges")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}")
