"""Who a job runs as, and how one thread gives up its own rights.

Linux keeps credentials per thread; libc hides that by changing all threads at once. Calling the kernel
directly lets a single thread become the job user for good while the rest of the agent stays root, so that
a job can be started by a plain posix_spawn (2,700 a second here) instead of through `setpriv` or
Popen(user=) (1,200 a second). Must not know attempts.
"""

from __future__ import annotations

import ctypes
import grp
import os
import platform
import pwd

import msgspec

from windfall.agent.errors import AgentError

CLONE_FS = 0x00000200
_PR_SET_CHILD_SUBREAPER = 36

#: setgroups, setresgid, setresuid. The numbers differ per architecture; 32-bit ones are not served.
_SYSCALLS = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147), "riscv64": (159, 149, 147)}

_libc = ctypes.CDLL(None, use_errno=True)


class JobUser(msgspec.Struct, frozen=True):
    """The user that jobs run as; `drop` tells whether the agent must give up rights for it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    drop: bool


def resolve_job_user(name: str) -> JobUser:
    """Look the user up; an agent that is not root can only run jobs as itself."""
    if os.geteuid() != 0:
        return JobUser(_own_name(), os.geteuid(), os.getegid(), tuple(os.getgroups()), drop=False)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise AgentError(f'there is no user "{name}" to run jobs as: name another with --job-user') from None
    groups = tuple(
        sorted({entry.pw_gid, *(group.gr_gid for group in grp.getgrall() if name in group.gr_mem)})
    )
    return JobUser(name, entry.pw_uid, entry.pw_gid, groups, drop=entry.pw_uid != 0)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def can_drop_in_one_thread() -> bool:
    """Tell whether this architecture's syscall numbers are known."""
    return platform.machine() in _SYSCALLS


def drop_this_thread(user: JobUser) -> None:
    """Make the calling thread the job user, irrevocably; the other threads keep their rights."""
    setgroups, setresgid, setresuid = _SYSCALLS[platform.machine()]
    groups = (ctypes.c_uint32 * len(user.groups))(*user.groups)
    _check(_libc.syscall(ctypes.c_long(setgroups), ctypes.c_long(len(user.groups)), groups), "setgroups")
    gid, uid = ctypes.c_long(user.gid), ctypes.c_long(user.uid)
    _check(_libc.syscall(ctypes.c_long(setresgid), gid, gid, gid), "setresgid")
    _check(_libc.syscall(ctypes.c_long(setresuid), uid, uid, uid), "setresuid")


def unshare_working_directory() -> None:
    """Give the calling thread a working directory (and umask) of its own."""
    _check(_libc.unshare(CLONE_FS), "unshare")


def become_subreaper() -> None:
    """Have the orphans of this process's descendants re-parented to it instead of to init."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
