"""Access keys: who may call, in which role, for which tenant, and as which Unix account its jobs run.

Decides what a usable key file is (JSON, mode 0600) and how it changes: under a lock, written beside, synced, then
renamed over the old one, so that a reader sees the old file or the new one and never half of either. Must not know
signatures or HTTP.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import logging
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from windfall.aws_api.protocol.errors import KeyFileError
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import TENANT_NAME

logger = logging.getLogger(__name__)

_FORMAT_VERSION = 1
_NAME = re.compile(r"\w[\w .@+-]{0,63}")
_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


class Role(enum.IntEnum):
    """What a key may do; a higher role includes the lower ones."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Key:
    """One access key with its secret. Never log or print it whole."""

    access_key_id: str
    secret_access_key: str
    role: Role
    tenant: str
    session_token: str | None
    #: Milliseconds since the epoch, like all times here.
    created_at: int
    revoked_at: int | None = None
    #: The Unix account that jobs submitted with it run as; None leaves that to its tenant.
    user: str | None = None
    #: The person or program that the key was made for.
    name: str | None = None

    def __repr__(self) -> str:
        return f"Key({self.access_key_id}, {self.role.name.lower()}, tenant={self.tenant})"


def load_keys(path: Path) -> list[Key]:
    """Return all keys of the file, revoked ones included. Raise KeyFileError where it cannot be trusted."""
    return _load(path)[0]


#: `windfall keys list` shows the same keys that the daemon loads.
list_keys = load_keys


def ensure_keys_file(path: Path, *, now: int) -> list[Key]:
    """Return the keys of the file, which is made with one admin key when there is none yet."""
    with _locked(path):
        if not path.exists():
            first = _new_key(Role.ADMIN, "default", now=now, with_session_token=False)
            _save(path, [replace(first, name=_own_account())])
        return load_keys(path)


def create_key(
    path: Path,
    *,
    role: Role,
    tenant: str = "default",
    now: int,
    with_session_token: bool = False,
    user: str | None = None,
    name: str | None = None,
) -> Key:
    """Add a new key to the file and return it; this is the only time its secret is handed out."""
    if name is not None and not _NAME.fullmatch(name):
        raise KeyFileError(
            f"{name!r} cannot be the name of a key: use 1 to 64 letters, digits, spaces, '.', '_', '@', '+' or '-', "
            "the first a letter or digit."
        )
    if user is not None:
        _check_user(path, user)
    if not TENANT_NAME.fullmatch(tenant):
        raise KeyFileError(
            f"{tenant!r} cannot be a tenant: use 1 to 64 letters, digits, '.', '_' or '-', "
            "the first a letter or digit."
        )
    new = _new_key(role, tenant, now=now, with_session_token=with_session_token)
    key = replace(new, user=user, name=name)
    with _locked(path):
        keys = load_keys(path) if path.exists() else []
        _save(path, [*keys, key])
    return key


def _own_account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # A container may run as a number that has no account.
        return str(os.geteuid())


def _check_user(path: Path, user: str) -> None:
    """Refuse an account that jobs cannot run as; the daemon's user is the owner of the key file."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise KeyFileError(
            f"There is no user {user!r} on this machine: jobs can only run as an account that exists."
        ) from None
    if uid == 0:
        raise KeyFileError(f"Jobs of a key never run as root, and {user!r} is root: name another account.")
    owner = path.stat().st_uid if path.exists() else os.geteuid()
    if owner not in (0, uid):
        raise KeyFileError(
            f"Only a daemon that runs as root can run jobs as {user!r}: start it as root, or leave --user out."
        )


def revoke_key(path: Path, access_key_id: str, *, now: int) -> Key:
    """Mark a key as revoked and return it; revoking twice keeps the first time."""
    with _locked(path):
        keys = load_keys(path)
        key = next((key for key in keys if key.access_key_id == access_key_id), None)
        if key is None:
            raise KeyFileError(f"{path} has no key {access_key_id}; `windfall keys list` lists them.")
        if key.revoked_at is not None:
            return key
        revoked = replace(key, revoked_at=now)
        _save(path, [revoked if other is key else other for other in keys])
    return revoked


def join_keys(path: Path, others: Iterable[Key]) -> list[Key]:
    """Add keys that are kept elsewhere too to the file, and return all; a key that is revoked in either is revoked."""
    with _locked(path):
        own = load_keys(path) if path.exists() else []
        joined = {key.access_key_id: key for key in own}
        for key in sorted(others, key=lambda key: key.created_at):
            mine = joined.get(key.access_key_id, key)
            revocations = [at for at in (mine.revoked_at, key.revoked_at) if at is not None]
            joined[key.access_key_id] = replace(mine, revoked_at=min(revocations, default=None))
        keys = list(joined.values())
        if keys != own:
            _save(path, keys)
    return keys


def encode_key(key: Key) -> bytes:
    """A key as JSON, for where keys are kept besides the file."""
    return json.dumps(_entry(key)).encode()


def decode_key(content: bytes) -> Key:
    """A key from JSON; raise KeyFileError where it is damaged."""
    try:
        return _parse_key(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeyFileError(f"A shared key is damaged ({type(error).__name__}).") from None


class KeyRing:
    """The valid keys of a file, read again whenever it changes: a revocation acts on the next request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: dict[str, Key] = {}
        self._tenants: tuple[str, ...] = ()
        self._seen: _Version | None = None
        self._reload()

    def find(self, access_key_id: str) -> Key | None:
        """Return the key unless it is unknown or revoked."""
        try:
            status = self._path.stat()
            changed = _version(status) != self._seen
        except OSError:
            changed = True
        if changed:
            self._reload_or_close()
        return self._keys.get(access_key_id)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that have a valid key: the default one first, then in the order of their oldest keys.

        While the file cannot be trusted they are those of before: what keeps their jobs apart must stay.
        """
        return self._tenants

    def _reload_or_close(self) -> None:
        try:
            self._reload()
        except KeyFileError as error:
            # Without a file that can be trusted no request is accepted, until the file is repaired.
            if self._keys or self._seen is not None:
                logger.error("No request is accepted until this is repaired: %s", error)  # noqa: TRY400 (no trace: it may quote secrets)
            self._keys, self._seen = {}, None

    def _reload(self) -> None:
        keys, seen = _load(self._path)
        self._keys = {key.access_key_id: key for key in keys if key.revoked_at is None}
        named = dict.fromkeys(key.tenant for key in self._keys.values())
        self._tenants = tuple(sorted(named, key=lambda tenant: tenant != DEFAULT_TENANT))
        self._seen = seen


#: What tells one version of the file from another.
_Version = tuple[int, int, int]


def _version(status: os.stat_result) -> _Version:
    # The time of change, not of writing: it moves with the mode and the owner too.
    return (status.st_ctime_ns, status.st_ino, status.st_size)


def _load(path: Path) -> tuple[list[Key], _Version]:
    try:
        # Mode and identity are taken from the open file: the name may point elsewhere a moment later.
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        raise KeyFileError(f"The key file {path} cannot be read: {error.strerror}.") from error
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise KeyFileError(
            f"The key file {path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}). "
            f"Run `chmod 600 {path}`, and replace its keys if others may have read them."
        )
    try:
        keys = [_parse_key(entry) for entry in json.loads(content)["keys"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The error's own text may quote a secret, so only its kind is told.
        raise KeyFileError(
            f"The key file {path} is damaged ({type(error).__name__}). Restore it from a backup, "
            "or remove it and start Windfall again to get a new admin key."
        ) from None
    return keys, _version(status)


def _parse_key(entry: Mapping[str, Any]) -> Key:
    key = Key(
        access_key_id=entry["access_key_id"],
        secret_access_key=entry["secret_access_key"],
        role=Role[entry["role"].upper()],
        tenant=entry["tenant"],
        session_token=entry.get("session_token"),
        created_at=int(entry["created_at"]),
        revoked_at=None if entry.get("revoked_at") is None else int(entry["revoked_at"]),
        user=entry.get("user"),
        name=entry.get("name"),
    )
    texts: list[object] = [key.access_key_id, key.secret_access_key, key.tenant, key.session_token or "-"]
    texts += ["-" if text is None else text for text in (key.user, key.name)]
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return key


def _entry(key: Key) -> dict[str, Any]:
    return {**asdict(key), "role": key.role.name.lower()}


def _new_key(role: Role, tenant: str, *, now: int, with_session_token: bool) -> Key:
    return Key(
        access_key_id="WNDF" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(16)),
        secret_access_key=secrets.token_urlsafe(30),
        role=role,
        tenant=tenant,
        session_token=secrets.token_urlsafe(48) if with_session_token else None,
        created_at=now,
    )


def _save(path: Path, keys: list[Key]) -> None:
    entries = [_entry(key) for key in keys]
    content = json.dumps({"version": _FORMAT_VERSION, "keys": entries}, indent=2) + "\n"
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock, so that two commands that change keys at once both take effect."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise KeyFileError(
            f"The folder of the key file {path} cannot be written: {error.strerror}."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
