"""The private directories of attempts: made, handed on, removed.

An empty directory that is forgotten is kept under a spare name and renamed for the next attempt, instead
of removed and made anew: ext4 does not reuse an inode within five seconds of its deletion and searches
past all such inodes at every creation, which made two thousand short jobs a second cost twice what they
should. Must not know attempts or the journal.
"""

from __future__ import annotations

import os

from windfall.agent.credentials import JobUser

_SPARE_PREFIX = ".spare-"
_MOST_SPARES = 512


class PrivateDirectories:
    """Directories of mode 0700 that belong to the job user, all below one parent that nobody may list."""

    def __init__(self, parent: str, user: JobUser) -> None:
        self._parent = parent
        self._user = user
        names = os.listdir(parent) if os.path.isdir(parent) else []
        self._spares = [os.path.join(parent, name) for name in names if name.startswith(_SPARE_PREFIX)]
        self._made = 0
        self._spare_prefix = f"{_SPARE_PREFIX}{os.getpid()}-"
        self._owner = (user.uid, user.gid) if user.drop else (os.geteuid(), os.getegid())

    def make(self, path: str) -> None:
        """Make a directory, or take one that exists as it is; raises OSError for anything else."""
        if self._spares and not os.path.lexists(path):
            os.rename(self._spares.pop(), path)
            return
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if os.path.islink(path) or not os.path.isdir(path):
                raise
        if self._user.drop:
            os.chown(path, self._user.uid, self._user.gid, follow_symlinks=False)

    def discard_empty(self, path: str) -> bool:
        """Put an empty directory away; False when it is not empty and must be removed file by file."""
        try:
            if len(self._spares) < _MOST_SPARES and not os.listdir(path):
                return self._keep_spare(path)
            os.rmdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return True

    def _keep_spare(self, path: str) -> bool:
        status = os.lstat(path)
        if (status.st_mode & 0o7777, status.st_uid, status.st_gid) != (0o700, *self._owner):
            os.rmdir(path)  # The job changed it; the next one shall not inherit that.
            return True
        self._made += 1
        spare = os.path.join(self._parent, f"{self._spare_prefix}{self._made}")
        os.rename(path, spare)
        self._spares.append(spare)
        return True
