"""The private directories of attempts: made, handed on, removed.

An empty directory that is forgotten is kept as it is and renamed for the next attempt, instead of removed and made
anew: on ext4 without a journal every creation searches past all that was deleted lately, which made two thousand short
jobs a second cost twice what they should. Full ones are removed in a thread, because a job may have left a million
files. Must not know attempts or the journal.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from windfall.agent.credentials import JobUser
from windfall.agent.removing import put_aside, remove_tree
from windfall.agent.speech import say

_MOST_SPARES = 512
#: A task id, and beside its working directory the private /tmp and what is staged for it.
_OF_AN_ATTEMPT = re.compile(r"[0-9a-f]{32}(\.tmp|\.ml)?")


class PrivateDirectories:
    """Directories of mode 0700 that belong to a job's user each, all below one parent that nobody may list."""

    def __init__(self, parent: str) -> None:
        self._parent = parent
        #: Empty ones, by uid and gid: a directory never goes from one user to another.
        self._spares: dict[tuple[int, int], list[str]] = {}
        self._spare_count = 0
        self._own = (os.geteuid(), os.getegid())
        #: The owners that one was made for: a directory of a container's user cannot be used again.
        self._owners: set[tuple[int, int]] = set()

    def leftovers(self, known: set[str]) -> list[str]:
        """Return the directories of attempts that nobody knows any more: an earlier agent's spares, and what it left.

        Only what is named as an attempt's is: whatever else lies here was put there by somebody else.
        """
        names = os.listdir(self._parent) if os.path.isdir(self._parent) else []
        paths = (os.path.join(self._parent, name) for name in names if _OF_AN_ATTEMPT.fullmatch(name))
        return [path for path in paths if path not in known]

    def make(self, path: str, user: JobUser) -> None:
        """Make a directory for a user, or take one that exists as it is; raises OSError for anything else."""
        owner = user.owner or self._own
        self._owners.add(owner)
        if spares := self._spares.get(owner):
            self._spare_count -= 1
            try:
                os.rename(spares.pop(), path)
            except OSError:
                pass  # Something with content is there; what it is shows below.
            else:
                return
        try:
            self._mkdir(path)
        except FileExistsError:
            if os.path.islink(path) or not os.path.isdir(path):
                raise
        if user.owner is not None:
            os.chown(path, *user.owner, follow_symlinks=False)

    def _mkdir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            # The parent was removed, which is not the attempt's fault.
            os.mkdir(self._parent)
            os.chmod(self._parent, 0o711)  # noqa: S103 - attempts must reach their own directories in it
            os.mkdir(path, 0o700)

    def discard_empty(self, path: str) -> bool:
        """Put an empty directory away; False when it is not empty and must be removed file by file."""
        try:
            if self._spare_count < _MOST_SPARES and not os.listdir(path):
                status = os.lstat(path)
                owner = (status.st_uid, status.st_gid)
                # A job may have changed the mode; the next one shall not inherit that.
                if status.st_mode & 0o7777 == 0o700 and owner in self._owners:
                    self._spares.setdefault(owner, []).append(path)
                    self._spare_count += 1
                    return True
            os.rmdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return True


def shared_directory(attempts_directory: str, uid: int) -> str:
    """Return the directory that belongs to all attempts of a user."""
    return os.path.join(attempts_directory, f"of-{uid}")


def make_shared_directory(attempts_directory: str, uid: int, gid: int) -> None:
    """Make that directory, with the agent's rights; nobody else can put something in its place."""
    path = shared_directory(attempts_directory, uid)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chown(path, uid, gid, follow_symlinks=False)


class Janitor:
    """Removes directories and remembers which attempts are done with."""

    def __init__(self, directories: PrivateDirectories, notify: Callable[[], None]) -> None:
        self._directories = directories
        self._notify = notify
        self._work: SimpleQueue[tuple[str | None, list[str]]] = SimpleQueue()
        self._done: deque[str] = deque()
        self._thread: threading.Thread | None = None

    def remove_now(self, token: str | None, paths: list[str]) -> bool:
        """Put the directories away if they are empty; otherwise begin to remove them, and return False.

        Without a token they belong to no attempt that anybody waits for.
        """
        full = [path for path in paths if not self._directories.discard_empty(path)]
        if not full:
            return True
        self._work.put((token, full))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)
            self._thread.start()
        return False

    def finished(self) -> list[str]:
        """Take the tokens whose directories are gone, or put aside for good."""
        taken = []
        while self._done:
            taken.append(self._done.popleft())
        return taken

    def _run(self) -> None:
        while True:
            token, paths = self._work.get()
            for path in paths:
                _remove(path)
            if token is not None:
                self._done.append(token)
                self._notify()


def _remove(path: str) -> None:
    """Remove a directory; one that cannot be is put aside, where no later agent tries again and again."""
    try:
        kept = remove_tree(path)
    except Exception as error:  # noqa: BLE001 - the edge of the loop: one directory must not keep all others
        kept = repr(error)
    if kept:
        aside = put_aside(path)
        where = f"it was put aside as {aside}: remove it by hand" if aside else "it stays where it is"
        say(f"{path} cannot be removed ({kept}); {where}")
