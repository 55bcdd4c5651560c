"""What of a data directory is kept in a backup, and how it is put back.

A backup is a tar file that begins with a list of its contents: the store as one consistent copy, the keys, the settings
and the secrets as they are stored. It does not contain checkpoints, logs or an agent's record of running attempts. A
running daemon need not be stopped for it. Must not know what is in the store.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from windfall import __version__
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.store_claim import CLAIM_NAME, read_claim

FORMAT = 1
_CONTENTS = "windfall-backup.json"
_STORE = "store/windfall.db"
#: Everything that a backup may hold beside its contents.
_ALLOWED = re.compile(
    rf"keys\.json|windfall\.toml|{re.escape(CLAIM_NAME)}|s3/secrets\.json|{re.escape(_STORE)}"
    r"|secrets/(?:@[\w.-]+/)?[^/\0]+|dead-letters/[^/\0]+"
)
_FILES = ("keys.json", "windfall.toml", CLAIM_NAME, "s3/secrets.json")
_FOLDERS = ("secrets", "dead-letters")
_ASIDE = "replaced-by-restore"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup says about itself."""

    created_at: int
    version: str
    #: The data directory that it was made from.
    data: str
    has_store: bool
    #: The files in it, by their names below the data directory.
    files: tuple[str, ...]


def make_backup(directory: DataDirectory, target: Path, *, with_store: bool, now: int) -> Backup:
    """Write a backup to a file, whole or not at all; what is there already is replaced only if it is a backup."""
    claim = read_claim(directory.root)
    if claim is None:
        raise DaemonError(f"there is no store in {directory.root} yet; name the directory with --data DIR")
    if with_store and not claim.where.startswith("/"):
        raise DaemonError(
            f"the store is a {claim.where}: back it up with `pg_dump --format=custom --file=windfall.dump URL`,"
            " where URL is that of --store, and everything else with `windfall backup --no-store FILE`"
        )
    if target.exists():
        try:
            read_backup(target)
        except DaemonError:
            raise DaemonError(
                f"{target} exists and is not a backup of Windfall; choose another name"
            ) from None
    if not target.parent.is_dir():
        raise DaemonError(
            f"{target.parent} is not a directory: make it with `mkdir -p`, or choose another one"
        )
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    copied = beside.with_name(f"{beside.name}.db")
    try:
        names = list(_present(directory.root))
        if with_store:
            _copy_store(Path(claim.where), copied)
        backup = Backup(now, __version__, str(directory.root), with_store, (*names, *([_STORE] * with_store)))
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
                _add(archive, _CONTENTS, json.dumps(_described(backup)).encode(), now)
                for name in names:
                    _add(archive, name, (directory.root / name).read_bytes(), now)
                if with_store:
                    _add_file(archive, _STORE, copied, now)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        raise DaemonError(
            f"the backup {target} was not written: {error.strerror or error}; choose another place, or free some space"
        ) from None
    finally:
        for leftover in (beside, copied, copied.with_name(f"{copied.name}-journal")):
            leftover.unlink(missing_ok=True)
    return backup


def read_backup(source: Path) -> Backup:
    """What a backup holds; DaemonError if the file is not a backup, or is newer than this version knows."""
    with _opened(source) as archive:
        first = archive.next()
        content = None if first is None or first.name != _CONTENTS else archive.extractfile(first)
        if content is None:
            raise DaemonError(f"{source} is not a backup of Windfall")
        said = json.loads(content.read(1 << 26))
        newer = said["format"] > FORMAT
        backup = Backup(
            said["createdAt"], said["version"], said["data"], said["hasStore"], tuple(said["files"])
        )
    if newer:
        raise DaemonError(
            f"{source} was written by a newer Windfall ({said['version']}); restore it with that one"
        )
    return backup


def restore_backup(directory: DataDirectory, source: Path, *, replace: bool) -> list[str]:
    """Put back what a backup holds; returns the paths that existing files were moved to."""
    backup = read_backup(source)
    try:
        existing = sorted(path.name for path in directory.root.iterdir() if path.name != "lost+found")
    except FileNotFoundError:
        existing = []
    except OSError as error:
        raise DaemonError(f"{directory.root} cannot be used: {error.strerror}") from None
    if existing and not replace:
        raise DaemonError(
            f"{directory.root} is not empty ({', '.join(existing[:6])}{', ...' if len(existing) > 6 else ''});"
            " name another with --data DIR, or put aside what is there with --force"
        )
    is_new = not directory.root.exists()
    fresh = directory.root / f".restoring.{secrets.token_hex(4)}"
    try:
        fresh.mkdir(mode=0o700, parents=True)
        _extract(source, backup, fresh)
        return _exchanged(directory, fresh, backup)
    except OSError as error:
        raise DaemonError(
            f"nothing was restored: {error.filename or directory.root}: {error.strerror or error}"
        ) from None
    finally:
        _remove_tree(fresh)
        if is_new:
            with contextlib.suppress(OSError):  # It is empty only where nothing was restored.
                directory.root.rmdir()


def _exchanged(directory: DataDirectory, fresh: Path, backup: Backup) -> list[str]:
    """Put what is whole now in its place, while no daemon uses the directory."""
    directory.prepare()
    lock = directory.lock()
    try:
        return _exchange(directory.root, fresh, backup)
    finally:
        os.close(lock)


def _present(root: Path) -> Iterator[str]:
    for name in _FILES:
        if (root / name).is_file():
            yield name
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if (
                path.is_file()
                and not path.is_symlink()
                and _ALLOWED.fullmatch(name)
                and not path.name.startswith(".")
            ):
                yield name


def _copy_store(store: Path, copied: Path) -> None:
    """One consistent copy, also while a daemon writes: a single step holds one snapshot and blocks nobody."""
    try:
        os.close(os.open(copied, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with (
            contextlib.closing(
                sqlite3.connect(f"file:{quote(str(store))}?mode=ro", uri=True, timeout=30)
            ) as source,
            contextlib.closing(sqlite3.connect(copied)) as target,
        ):
            source.backup(target, pages=-1)
    except sqlite3.Error as error:
        raise DaemonError(f"the store {store} cannot be copied: {error}") from None


def _add(archive: tarfile.TarFile, name: str, content: bytes, now: int) -> None:
    archive.addfile(_entry(name, len(content), now), io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, path: Path, now: int) -> None:
    with path.open("rb") as file:
        archive.addfile(_entry(name, path.stat().st_size, now), file)


def _entry(name: str, size: int, now: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, now // 1000
    return entry


def _described(backup: Backup) -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": backup.version,
        "createdAt": backup.created_at,
        "data": backup.data,
        "hasStore": backup.has_store,
        "files": backup.files,
    }


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, mode="r:gz") as archive:
            yield archive
    except FileNotFoundError:
        raise DaemonError(f"there is no file {source}") from None
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DaemonError(f"{source} is not a complete backup of Windfall ({type(error).__name__})") from None
    except OSError as error:
        raise DaemonError(f"{source} cannot be read: {error.strerror or error}") from None


def _extract(source: Path, backup: Backup, fresh: Path) -> None:
    """Extract everything to a separate directory first; refuse a name that no backup contains."""
    missing = set(backup.files)
    with _opened(source) as archive:
        for entry in archive:
            if entry.name == _CONTENTS:
                continue
            parts = PurePosixPath(entry.name).parts
            if not (entry.isreg() and _ALLOWED.fullmatch(entry.name)) or ".." in parts or "." in parts:
                raise DaemonError(
                    f"{source} holds {entry.name!r}, which is never part of a backup; nothing was restored"
                )
            content = archive.extractfile(entry)
            assert content is not None
            path = fresh / entry.name
            for above in reversed(path.relative_to(fresh).parents):
                (fresh / above).mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                while piece := content.read(1 << 20):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            missing.discard(entry.name)
    if missing:
        raise DaemonError(
            f"{source} is incomplete: {', '.join(sorted(missing))} missing; nothing was restored"
        )
    if backup.has_store:
        _check_store(source, fresh / _STORE)


def _check_store(source: Path, store: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(store)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        verdict = str(error)
    if verdict != "ok":
        raise DaemonError(f"the store in {source} is damaged ({verdict}); nothing was restored")


def _exchange(root: Path, fresh: Path, backup: Backup) -> list[str]:
    """Move existing files aside, then move the restored ones into place."""
    aside = root / f"{_ASIDE}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"
    moved = []
    top = sorted({PurePosixPath(name).parts[0] for name in backup.files} - {"s3"})
    for name in [*top, *(["s3/secrets.json"] if "s3/secrets.json" in backup.files else [])]:
        old = root / name
        if old.is_file() or (old.is_dir() and any(old.iterdir())):
            (aside / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            old.rename(aside / name)
            moved.append(str(aside / name))
        elif old.is_dir():
            old.rmdir()
        old.parent.mkdir(mode=0o700, exist_ok=True)
        (fresh / name).rename(old)
    return moved


def _remove_tree(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
