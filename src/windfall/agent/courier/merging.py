"""One output of a job of several nodes: what they leave is put together on a machine, and goes to the store as one.

Every node moves its files into a directory of their common try, one node at a time, and stores all that is there by
then; so what the last one stores is complete. Of a file that several nodes leave, the one that came last stands. Files
are moved and not copied: nobody uses an ended process's outputs any more. Must not know stores.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator

from windfall.agent.courier.archives import files_below
from windfall.agent.walking import open_plain, opened_directory, remove_below, removed
from windfall.jobs.staging import Output

_PREFIX = "merged-"
#: A job runs for 28 days at most; what is older waits for nobody.
_KEPT_S = 30 * 24 * 3600
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class MergedOutput:
    """The common directory of one output of one try.

    Which nodes have stored their part is kept after the last one has: an order that is repeated must not begin anew.
    """

    def __init__(self, above: str, output: Output) -> None:
        assert output.merged_as is not None, f"{output.path} is of one node alone"
        job, _, number = output.merged_as.rpartition("#")
        number, _, born_at = number.partition(".")
        self._above = above
        self._of_job = f"{_PREFIX}{_short(f'{job} {born_at}')}-"
        self._name = f"{self._of_job}{number}-{_short(output.path)}"
        self._of = output.merged_of
        #: With nodes on other machines, a part is stored for every node: its count must become known.
        self._always = output.merged_in_store
        self._root = os.path.join(above, self._name)
        self._files, self._stored = f"{self._root}/files", f"{self._root}/stored"
        self._pending = f"{self._root}/pending"

    @contextlib.contextmanager
    def joined(self, directory: int, token: str) -> Iterator[int | None]:
        """Add what is in an open directory, and yield all that has been added so far as one that is open.

        Yields None where nothing is new since that was stored. It counts as stored when the block ends well. Nobody
        else adds anything meanwhile.
        """
        self._remove_old()
        os.makedirs(self._files, 0o700, exist_ok=True)
        os.makedirs(self._stored, 0o700, exist_ok=True)
        lock = os.open(f"{self._root}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._always or not os.listdir(self._stored) or _has_files(directory):
                # Before anything is moved: the successor of a killed courier must know that there is something.
                _touch(self._pending)
            _move_all(directory, self._files)
            if os.path.exists(self._pending):
                whole = os.open(self._files, _LOOK)
                try:
                    yield whole
                finally:
                    os.close(whole)
                os.unlink(self._pending)
            else:
                yield None
            _touch(f"{self._stored}/{_short(token)}")
            if len(os.listdir(self._stored)) >= self._of:
                removed(self._files)
        finally:
            os.close(lock)

    def part(self, token: str) -> tuple[str, int]:
        """What this machine is called within the try, and how many of its nodes have added theirs, with this one."""
        path = f"{self._root}/machine"
        try:
            with open(path, encoding="ascii") as file:
                machine = file.read()
        except FileNotFoundError:
            machine = secrets.token_hex(8)
            with open(path, "w", encoding="ascii") as file:
                file.write(machine)
        return machine, len({*os.listdir(self._stored), _short(token)})

    def _remove_old(self) -> None:
        """Remove what earlier tries of the job have left, and what nobody can be waiting for."""
        for name in os.listdir(self._above):
            if not name.startswith(_PREFIX) or name.startswith(self._name.rpartition("-")[0] + "-"):
                continue
            path = os.path.join(self._above, name)
            with contextlib.suppress(OSError):
                if name.startswith(self._of_job) or time.time() - os.stat(path).st_mtime > _KEPT_S:
                    removed(path)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _touch(path: str) -> None:
    with open(path, "wb"):
        pass


def _has_files(directory: int) -> bool:
    return any(not stat.S_ISDIR(status.st_mode) for _, status, _ in files_below(directory))


def _move_all(directory: int, target: str) -> None:
    root = os.open(target, _LOOK)
    try:
        for name, status, holder in files_below(directory):
            above, _, last = name.rpartition("/")
            place = opened_directory(root, above)
            try:
                _move_entry(status, holder, last, place)
            finally:
                os.close(place)
    finally:
        os.close(root)


def _move_entry(status: os.stat_result, holder: int, name: str, place: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        if not _is_directory(name, place):
            _clear(name, place)
            os.mkdir(name, dir_fd=place)
        os.chmod(name, stat.S_IMODE(status.st_mode) | 0o700, dir_fd=place)
    elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        _clear(name, place)
        _move(name, holder, place)


def _is_directory(name: str, place: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _clear(name: str, place: int) -> None:
    if _is_directory(name, place):
        remove_below(place, name)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)


def _move(name: str, holder: int, place: int) -> None:
    try:
        os.rename(name, name, src_dir_fd=holder, dst_dir_fd=place)
    except OSError as error:
        # A job may have had a file system of its own mounted there; and what a container left is not ours to move.
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EACCES):
            raise
        _copy(name, holder, place)


def _copy(name: str, holder: int, place: int) -> None:
    """Copy a regular file, or a link as such; whatever stands there by now, no link is followed."""
    try:
        linked = os.readlink(name, dir_fd=holder)
    except OSError:
        linked = None
    if linked is not None:
        os.symlink(linked, name, dir_fd=place)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(open_plain(name, holder), "rb") as source:
        status = os.fstat(source.fileno())
        with open(os.open(name, flags, 0o600, dir_fd=place), "wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fchmod(target.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(target.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
