"""Keys and secrets of daemons that share a store and no directory: rows of the store, with a copy in each directory.

Everything that reads keys and secrets reads the files of its own data directory, as with one daemon. This module brings
the files and the rows together, a moment after either has changed. Keys are only added and revoked, so that both sides
are joined and nothing is overwritten. A secret is what its row says. Values in the store are sealed with `seal.key`, a
file that each data directory has a copy of. Must not know HTTP, nor jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from windfall.agent.secrets import kept_file
from windfall.aws_api.protocol.errors import KeyFileError
from windfall.aws_api.protocol.keys import decode_key, encode_key, join_keys
from windfall.backoff import FailureLog
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.homes import enter, homes_of
from windfall.daemon.sealing import Seal
from windfall.daemon.secrets import listed_secrets, write_secret
from windfall.daemon.settings import Settings
from windfall.jobs.tenants import qualified
from windfall.store.coordination import SharedValues
from windfall.store.errors import StoreError
from windfall.store.sql_store import SqlStore

log = logging.getLogger(__name__)

SEAL_NAME = "seal.key"
#: How soon a key that was made or revoked with one daemon is so with all of them.
SYNC_EVERY_S = 0.5
_KEY, _SECRET = "key/", "secret/"
_CHECK = "seal"


class SharedFiles:
    """The keys and secrets of one data directory, as one of several of a store. All methods block."""

    def __init__(
        self, values: SharedValues, seal: Seal, directory: DataDirectory, clock_ms: Callable[[], int]
    ) -> None:
        self._values, self._seal, self._directory = values, seal, directory
        self._clock_ms = clock_ms
        #: What was applied here, by name; None before the first time.
        self._applied: dict[str, int] | None = None
        self._keys_seen: tuple[object, ...] = ()
        self._failures = FailureLog(time.monotonic)

    def sync(self) -> None:
        """Bring this directory and the store together; StoreError, KeyFileError or OSError if that fails."""
        versions = self._values.versions()
        self._sync_keys(versions)
        self._sync_secrets(versions)

    def catch_up(self) -> None:
        """As `sync`, but a failure is logged once: the next time is soon."""
        try:
            self.sync()
            self._failures.is_over()
        except (StoreError, KeyFileError, OSError) as error:
            if self._failures.is_news(type(error).__name__):
                log.warning("keys and secrets are not shared now: %s", error)

    async def keep_in_step(self) -> None:
        """Catch up again and again, until cancelled."""
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            await asyncio.to_thread(self.catch_up)

    def put_secret(self, kept_name: str, content: bytes | None) -> None:
        """Set a secret for all daemons, or remove it; its file here is the caller's."""
        label = _SECRET + kept_name
        value = None if content is None else self._seal.sealed(label, content)
        self._values.put(label, value, self._clock_ms())

    def _sync_keys(self, versions: dict[str, int]) -> None:
        path = self._directory.keys
        rows = {name: version for name, version in versions.items() if name.startswith(_KEY)}
        seen = (rows, _version_of(path))
        if seen == self._keys_seen or (not rows and not path.exists()):
            return
        in_store = {
            name: decode_key(self._opened(name, value.value))
            for name, value in self._values.read(list(rows)).items()
            if value.value is not None
        }
        for key in join_keys(path, in_store.values()):
            name = _KEY + key.access_key_id
            if in_store.get(name) != key:
                sealed = self._seal.sealed(name, encode_key(key))
                # Where another daemon was quicker, the next time joins both.
                self._values.put(name, sealed, self._clock_ms(), rows.get(name, 0))
        self._keys_seen = (rows, _version_of(path))

    def _sync_secrets(self, versions: dict[str, int]) -> None:
        root, rows = self._directory.secrets, {n: v for n, v in versions.items() if n.startswith(_SECRET)}
        if self._applied is None:
            # Those of a directory that was used before its secrets were shared.
            for tenant, name, path in listed_secrets(root):
                label = _SECRET + qualified(tenant, name)
                if label not in rows:
                    self._values.put(
                        label, self._seal.sealed(label, path.read_bytes()), self._clock_ms(), before=0
                    )
            self._applied = {}
        changed = [name for name, version in rows.items() if self._applied.get(name) != version]
        for label, value in self._values.read(changed).items():
            if (file := kept_file(label.removeprefix(_SECRET))) is None:
                continue  # Nothing of ours; it must not become a path.
            if value.value is None:
                (root / file).unlink(missing_ok=True)
            else:
                write_secret(root / file, self._opened(label, value.value))
            self._applied[label] = value.version

    def _opened(self, label: str, sealed: bytes) -> bytes:
        try:
            return self._seal.opened(label, sealed)
        except ValueError as error:
            raise StoreError(f"{label} of the shared store cannot be read: {error}") from None


def share_files(
    settings: Settings, directory: DataDirectory, store: SqlStore, clock_ms: Callable[[], int]
) -> SharedFiles | None:
    """What this directory shares with others of its store; DaemonError if it may not be one of them."""
    if store.coordination is None:
        return None
    values = store.coordination.shared
    seal = open_seal(
        values, directory.root, store.identity, [home.where for home in homes_of(values).values()]
    )
    enter(values, settings, directory, clock_ms())
    shared = SharedFiles(values, seal, directory, clock_ms)
    shared.sync()
    return shared


def open_seal(values: SharedValues, data: Path, identity: str, homes: Iterable[str]) -> Seal:
    """The seal of a store, which the first data directory makes; DaemonError where another one lacks its copy."""
    path = data / SEAL_NAME
    check = values.read([_CHECK]).get(_CHECK)
    if not path.exists():
        if check is not None:
            raise DaemonError(_without_copy(path, homes))
        _make(path)
    seal = Seal(_read(path))
    if check is None and not values.put(_CHECK, seal.sealed(_CHECK, identity.encode()), 0, before=0):
        check = values.read([_CHECK]).get(_CHECK)
    if check is not None:
        try:
            seal.opened(_CHECK, check.value or b"")
        except ValueError:
            raise DaemonError(f"{path} is of another store: {_without_copy(path, homes)}") from None
    return seal


def _without_copy(path: Path, homes: Iterable[str]) -> str:
    places = " or ".join(f"{home}/{SEAL_NAME}" for home in homes) or "another daemon's data directory"
    return (
        f"the keys and secrets of this store are sealed; copy {places} to {path}, with mode 600,"
        " and start this daemon again"
    )


def _make(path: Path) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)  # Of two daemons that begin at once, one makes it.
    finally:
        beside.unlink()


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        status, content = os.fstat(file.fileno()), file.read().strip()
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise DaemonError(f"{path} is open to other users; run `chmod 600 {path}`")
    if len(content) < 32:
        raise DaemonError(f"{path} is damaged; copy it anew from another daemon's data directory")
    return content


def _version_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ctime_ns, status.st_ino, status.st_size)
