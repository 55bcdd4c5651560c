"""Who a job runs as, and how one thread takes that user's rights for a moment.

Linux keeps credentials per thread; libc hides that by changing all threads at once. Calling the kernel
directly lets a single thread be a job user while the rest of the agent stays root, so that a job can be
started by a plain posix_spawn (2,700 a second here) instead of through `setpriv` or Popen(user=) (1,200 a
second). The thread keeps root as its saved user, with which it comes back. A program that it starts does
not: the kernel overwrites the saved user at exec. Must not know attempts.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import platform
import pwd
import resource
import threading
from functools import lru_cache

import msgspec

from windfall.agent.errors import AgentError, CannotStart
from windfall.jobs.job_users import RunAs

#: As Amazon's image for containers has it, if this process may: each attempt that is taken over costs an open file.
_OPEN_FILES = 32_768
CLONE_FS = 0x00000200
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

#: setgroups, setresgid, setresuid. The numbers differ per architecture; 32-bit ones are not served.
_SYSCALLS = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147), "riscv64": (159, 149, 147)}

_libc = ctypes.CDLL(None, use_errno=True)
_CALLS = tuple(ctypes.c_long(number) for number in _SYSCALLS.get(platform.machine(), ()))


class JobUser(msgspec.Struct, frozen=True):
    """A user that jobs run as; `drop` tells whether the agent must give up rights for it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    drop: bool

    @property
    def owner(self) -> tuple[int, int] | None:
        """The owner of files that are made for a job; None where they are the job's already."""
        return (self.uid, self.gid) if self.drop else None


def resolve_job_user(name: str) -> JobUser:
    """Look the user up; an agent that is not root can only run jobs as itself."""
    if os.geteuid() != 0:
        return _oneself()
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise AgentError(f'there is no user "{name}" to run jobs as: name another with --job-user') from None
    return _user_of(entry)


def user_to_run_as(wanted: RunAs) -> JobUser:
    """Find the user of one attempt; raises CannotStart."""
    if wanted.account is not None:
        return _account(wanted.account)
    assert wanted.uid is not None
    if os.geteuid() != 0:
        raise CannotStart(f"only an agent that is root can run a job as uid {wanted.uid}")
    return _without_account(wanted.uid)


def _account(name: str) -> JobUser:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise CannotStart(
            f'there is no user "{name}", which the submitting key names for its jobs:'
            " make the account again, or submit with another key"
        ) from None
    if os.geteuid() == 0 and entry.pw_uid != 0:
        return _user_of(entry)
    if entry.pw_uid == 0 or entry.pw_uid != os.geteuid():
        raise CannotStart(
            f'jobs cannot run as "{name}" here: an agent that is root runs them as any user but root,'
            " another one as itself"
        )
    return _oneself()


@lru_cache(maxsize=4096)
def _without_account(uid: int) -> JobUser:
    """Return the user of a tenant; a number that this machine knows somebody by is refused."""
    for lookup, kind in ((pwd.getpwuid, "user"), (grp.getgrgid, "group")):
        with contextlib.suppress(KeyError):
            raise CannotStart(
                f"{uid} would be the tenant's user, and is the {kind} {lookup(uid)[0]} on this machine:"
                " start the daemon with another range (--job-users FIRST-LAST)"
            )
    return JobUser(str(uid), uid, uid, (), drop=True)


def _user_of(entry: pwd.struct_passwd) -> JobUser:
    groups = tuple(sorted({entry.pw_gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)}))
    return JobUser(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, drop=entry.pw_uid != 0)


def _oneself() -> JobUser:
    return JobUser(_own_name(), os.geteuid(), os.getegid(), tuple(os.getgroups()), drop=False)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def can_drop_in_one_thread() -> bool:
    """Tell whether this architecture's syscall numbers are known."""
    return bool(_CALLS)


def check_becoming(user: JobUser) -> None:
    """Try to have a job user's rights for a moment; raises AgentError where that is not permitted."""
    faults: list[OSError] = []

    def become() -> None:
        rights = ThreadRights()
        try:
            rights.take(user)
        except OSError as error:
            faults.append(error)
        rights.rest()

    thread = threading.Thread(target=become)
    thread.start()
    thread.join()
    if faults:
        raise AgentError(
            f"jobs cannot be run as {user.name}: {faults[0].strerror}; give the agent the capabilities SETUID and"
            " SETGID, or say --job-user root"
        )


class ThreadRights:
    """The rights of one thread: the agent's, or those of one job user at a time. Made and used by that thread."""

    def __init__(self) -> None:
        #: The agent's own, and those that the thread has now: the group, and all others.
        self._agent_uid, self._agent_groups = os.geteuid(), (os.getegid(), tuple(os.getgroups()))
        self._uid, self._groups = self._agent_uid, self._agent_groups
        # What a program would keep although its user may not have it; kernels before 4.3 know no such thing.
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)

    def take(self, user: JobUser | None) -> None:
        """Have the rights of a job user from now on, or with None the agent's own; raises OSError, with the latter."""
        uid, groups = self._agent_uid, self._agent_groups
        if user is not None and user.drop:
            uid, groups = user.uid, (user.gid, user.groups)
        if (uid, groups) == (self._uid, self._groups):
            return
        self.rest()
        try:
            self._change_groups(groups)
            if uid != self._uid:
                # The saved one stays root: that is the way back, and keeps jobs of this user from tracing the thread.
                _set_uids(uid, uid, self._agent_uid)
                self._uid = uid
        except OSError:
            self._change_groups(self._agent_groups)
            raise

    def rest(self) -> None:
        """Be the agent's user again, so that no job may signal this thread; the groups stay for the next start."""
        if self._uid != self._agent_uid:
            _set_uids(self._agent_uid, self._agent_uid, self._agent_uid)
            self._uid = self._agent_uid

    def _change_groups(self, groups: tuple[int, tuple[int, ...]]) -> None:
        if groups != self._groups:
            self._groups = groups
            _set_gids(groups[0])
            set_thread_groups(groups[1])


def set_thread_groups(groups: tuple[int, ...]) -> None:
    """Replace the supplementary groups of the calling thread; raises OSError."""
    numbers = (ctypes.c_uint32 * len(groups))(*groups)
    _check(_libc.syscall(_CALLS[0], ctypes.c_long(len(groups)), numbers), "setgroups")


def _set_gids(gid: int) -> None:
    number = ctypes.c_long(gid)
    _check(_libc.syscall(_CALLS[1], number, number, number), "setresgid")


def _set_uids(real: int, effective: int, saved: int) -> None:
    numbers = (ctypes.c_long(real), ctypes.c_long(effective), ctypes.c_long(saved))
    _check(_libc.syscall(_CALLS[2], *numbers), "setresuid")


def unshare_working_directory() -> None:
    """Give the calling thread a working directory (and umask) of its own."""
    _check(_libc.unshare(CLONE_FS), "unshare")


def become_subreaper() -> None:
    """Have the orphans of this process's descendants re-parented to it instead of to init."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def keep_descriptors_to_itself() -> None:
    """Let no job inherit what this process inherited, above all the warden's lock: it must end with us."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)  # noqa: FBT003 - it takes no keyword


def allow_many_files() -> None:
    """Raise the limit of open files; jobs inherit it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
