"""How a companion process of a root agent becomes an ordinary user for good.

A companion is started as root, loads its code (which the job user may not be able to read), and then gives everything
up: user, groups, the way back through setuid programs, and all capabilities but one where its identity says so. It
stays non-dumpable, so that a job of the same user can neither trace it nor read its memory, environment or descriptors.
Must not know what the companion does.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping

import msgspec

from windfall.agent.launching import agent_environment

_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64
_CAP_DAC_READ_SEARCH = 2
#: What a companion needs of the agent's environment. The rest may hold credentials.
_KEPT = ("PATH", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO")
_KEPT_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_KEPT_PREFIXES = ("LC_", "PYTHON")


class Identity(msgspec.Struct, frozen=True):
    """The user that a companion becomes."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    #: Whether it may read files of all users, and do nothing else to them: containers leave files of anybody's.
    reads_all: bool = False

    @property
    def digest(self) -> str:
        """Return what stands for it in the name of a file: one user may have been in different groups."""
        content = ",".join(map(str, (self.gid, *self.groups, *(("reads all",) if self.reads_all else ()))))
        return f"{self.uid}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def demote(identity: Identity) -> None:
    """Make this process, with all its threads, the user; there is no way back."""
    if identity.uid == 0:
        raise ValueError("a companion cannot be demoted to root")
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # The kernel has no more of them.
    kept = 1 << _CAP_DAC_READ_SEARCH if identity.reads_all else 0
    libc.prctl(_PR_SET_KEEPCAPS, 1 if kept else 0, 0, 0, 0)
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    for result in (
        # Effective, permitted and inheritable ones, twice 32; what such a process starts inherits none.
        libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept)),
        libc.prctl(_PR_SET_KEEPCAPS, 0, 0, 0, 0),
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0),
    ):
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"the rights of root cannot be given up: {os.strerror(number)}")


def plain_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a companion: where its code is and how programs are found, and no credentials."""
    found = agent_environment() if variables is None else variables
    names = {*_KEPT, *_KEPT_PROXIES, *(name.upper() for name in _KEPT_PROXIES)}
    return {name: value for name, value in found.items() if name in names or name.startswith(_KEPT_PREFIXES)}
