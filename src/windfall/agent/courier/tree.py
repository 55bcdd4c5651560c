"""A directory of an attempt, worked on by descriptors: no link that a job could have made is followed.

The courier has the agent's rights and the job writes into the same directories, so a path is never trusted as a whole.
The directories that the courier looks into after the job's start stay the agent's own (the job's group may write, and
sticky keeps it from replacing them); everything in them is the job's. Must not know what the files mean.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from windfall.agent.courier.errors import CannotBring
from windfall.agent.walking import open_plain, remove_below

_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_MODE = 0o1770


class Tree:
    """One directory and what is below it; names are relative to it."""

    def __init__(self, root: str, owner: tuple[int, int] | None) -> None:
        self.root = root
        #: The owner of the job's files; None when that is this process's user.
        self.owner = owner

    def empty(self) -> None:
        """Make the directory anew, with nothing in it, and closed: until `open`, no other job can meddle with it."""
        os.makedirs(self.root, 0o700, exist_ok=True)
        with self.directory(".") as fd:
            if self.owner is not None:
                os.fchown(fd, os.geteuid(), self.owner[1])
            os.fchmod(fd, 0o700)
            for name in os.listdir(fd):
                try:
                    os.unlink(name, dir_fd=fd)
                except IsADirectoryError:
                    remove_below(fd, name)

    @contextlib.contextmanager
    def passable(self) -> Iterator[None]:
        """Let the job's user pass through, for as long as a program of that user must reach what is below."""
        with self.directory(".") as fd:
            os.fchmod(fd, 0o710)
            try:
                yield
            finally:
                os.fchmod(fd, 0o700)

    def open(self) -> None:
        """Let the job in."""
        with self.directory(".") as fd:
            self._keep(fd)

    def make(self, relative: str) -> None:
        """Make a directory, and those above it, that the job may fill but not replace."""
        os.close(self._descend(relative, give=None))

    def make_closed(self, relative: str) -> None:
        """Make a directory that the job may look into and nothing else."""
        fd = self._descend(relative, give=None)
        try:
            if self.owner is not None:
                os.fchmod(fd, 0o750)
        finally:
            os.close(fd)

    def keep(self, relative: str) -> None:
        """Take back a directory that something else has made, as if by `make`."""
        with self.directory(relative) as fd:
            if self.owner is not None:
                os.fchown(fd, os.geteuid(), -1)
            self._keep(fd)

    def give_directory(self, relative: str, mode: int = 0o755) -> None:
        """Make a directory that is the job's own."""
        os.close(self._descend(relative, give=mode))

    @contextlib.contextmanager
    def directory(self, relative: str) -> Iterator[int]:
        """Open a directory that exists; OSError where it does not, or where a link stands in the way."""
        fd = self._descend(relative, give=None, must_exist=True)
        try:
            yield fd
        finally:
            os.close(fd)

    def create(self, relative: str, mode: int = 0o644) -> int:
        """Open a file of the job for writing that must not exist yet; return its descriptor."""
        above, name = os.path.split(relative)
        directory = self._descend(above or ".", give=0o755)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=directory)
        except FileExistsError:
            raise CannotBring(f"{relative} would be written twice") from None
        finally:
            os.close(directory)
        if self.owner is not None:
            os.fchown(fd, *self.owner)
        os.fchmod(fd, mode)
        return fd

    def write(self, relative: str, content: bytes) -> None:
        """Write a small file of the job."""
        fd = self.create(relative)
        with os.fdopen(fd, "wb") as file:
            file.write(content)

    def put(self, relative: str, content: bytes) -> None:
        """Write a small file of our own where the job may write too; it appears whole, and as a new file always."""
        above, name = os.path.split(relative)
        fresh = f"{name}.new"
        with self.directory(above or ".") as directory:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(fresh, flags, 0o644, dir_fd=directory)
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o644)
                file.write(content)
            os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)

    def take_in(self, path: str, relative: str, mode: int = 0o644) -> None:
        """Make a file that the job could never touch one of the job's own, under a name below this directory."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if self.owner is not None:
                os.fchown(fd, *self.owner)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        above, name = os.path.split(relative)
        with self.directory(above or ".") as directory:
            os.rename(path, name, dst_dir_fd=directory)

    def link(self, relative: str, target: str) -> None:
        """Make a symbolic link of the job."""
        above, name = os.path.split(relative)
        directory = self._descend(above or ".", give=0o755)
        try:
            os.symlink(target, name, dir_fd=directory)
            if self.owner is not None:
                os.chown(name, *self.owner, dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(directory)

    def read(self, relative: str, most_bytes: int) -> bytes | None:
        """Return the beginning of a plain file, None where there is none."""
        above, name = os.path.split(relative)
        try:
            with self.directory(above or ".") as directory:
                fd = open_plain(name, directory)
        except OSError:
            return None
        try:
            return os.read(fd, most_bytes)
        except OSError:
            return None
        finally:
            os.close(fd)

    def _descend(self, relative: str, *, give: int | None, must_exist: bool = False) -> int:
        fd = os.open(self.root, _LOOK)
        try:
            for part in relative.split("/"):
                if part in ("", "."):
                    continue
                if part == "..":
                    raise CannotBring(f"{relative} goes upwards")
                made = not must_exist and self._mkdir(fd, part)
                below = os.open(part, _LOOK, dir_fd=fd)
                os.close(fd)
                fd = below
                if made and give is None:
                    self._keep(fd)
                elif made and give is not None:
                    self._hand_over(fd, give)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _mkdir(self, above: int, name: str) -> bool:
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            return False
        return True

    def _keep(self, fd: int) -> None:
        if self.owner is not None:
            os.fchown(fd, os.geteuid(), self.owner[1])
            os.fchmod(fd, _KEPT_MODE)

    def _hand_over(self, fd: int, mode: int) -> None:
        if self.owner is not None:
            os.fchown(fd, *self.owner)
        os.fchmod(fd, mode | 0o700)
