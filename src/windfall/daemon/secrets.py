"""Secrets that jobs get by name, kept as files that other users cannot read.

Each tenant has its own, and a job gets those of its tenant. Credentials for Git are among them. Decides the name and
size of a secret. The API never returns a value: the agent reads the file when a job starts. Must not know jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.jobs.containers import SECRET_NAME, secret_file
from windfall.jobs.git_credentials import (
    BadCredential,
    credential_file,
    decode_credential,
    is_credential_name,
)
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import TENANT_NAME, qualified
from windfall.store.errors import StoreError

#: As AWS Secrets Manager has it.
SIZE_MAX_BYTES = 64 * 1024


#: Stores the value of a secret, by its kept name, for all daemons of a store; None removes it. Blocks.
ShareSecret = Callable[[str, bytes | None], None]
Lead = Callable[[], Awaitable[Any]]


class Secrets:
    """The operations SetSecret, ListSecrets and RemoveSecret, over a directory of mode 0700."""

    def __init__(self, directory: Path, share: ShareSecret | None = None, lead: Lead | None = None) -> None:
        """`share` stores a value for all daemons first; `lead` raises where another daemon must be asked."""
        self._directory = directory
        self._share = share
        self._lead = lead

    async def set_secret(self, call: Call) -> dict[str, Any]:
        """Store a value under a name; it replaces an earlier one for attempts that start from now on."""
        (tenant, name), value = _named(call), call.params.get("value")
        if not isinstance(value, str) or not value:
            raise ApiError("Invalid", "value is required (a non-empty string).")
        content = value.encode()
        if len(content) > SIZE_MAX_BYTES:
            raise ApiError(
                "Invalid", f"A secret may have at most {SIZE_MAX_BYTES} bytes; this one has {len(content)}."
            )
        if is_credential_name(name):
            try:
                decode_credential(value)
            except BadCredential as problem:
                raise ApiError("Invalid", f"{name} was not set: {problem}.") from None
        await self._on_leader()
        path = self._path(tenant, name)
        replaced = path.exists()
        await self._shared(tenant, name, content)
        try:
            await asyncio.to_thread(write_secret, path, content)
        except OSError as error:
            raise ApiError(
                "InternalFailure",
                f"The secret was not stored: {error.strerror}; check {self._directory} on the daemon's host.",
                500,
            ) from None
        return {"name": name, "tenant": tenant, "replaced": replaced}

    async def list_secrets(self, call: Call) -> dict[str, Any]:
        """The names of a tenant's secrets, and when each was last set; never a value."""
        tenant = _tenant(call)
        await self._on_leader()
        listed = [
            {"name": path.name, "setAt": int(path.stat().st_mtime * 1000)}
            for path in _secrets_in(self._path(tenant, "_").parent)
        ]
        return {"tenant": tenant, "secrets": sorted(listed, key=lambda secret: str(secret["name"]))}

    async def remove_secret(self, call: Call) -> dict[str, Any]:
        """Remove a value; attempts that have it keep it, later ones fail to start."""
        tenant, name = _named(call)
        await self._on_leader()
        try:
            if (path := self._path(tenant, name)).exists():
                await self._shared(tenant, name, None)
            path.unlink()
        except FileNotFoundError:
            raise ApiError(
                "NotFound",
                f"There is no secret {name}; `windfall secret list` lists them.",
                404,
            ) from None
        return {}

    async def _on_leader(self) -> None:
        """Raise where another daemon leads: a job that is submitted next must find the secret where it starts."""
        if self._lead is not None:
            await self._lead()

    async def _shared(self, tenant: str, name: str, content: bytes | None) -> None:
        if self._share is None:
            return
        try:
            await asyncio.to_thread(self._share, qualified(tenant, name), content)
        except StoreError as error:
            raise ApiError(
                "InternalFailure", f"The secret was not changed: {error}; try again.", 500
            ) from None

    def _path(self, tenant: str, name: str) -> Path:
        full_name = qualified(tenant, name)
        file = secret_file(full_name) or credential_file(full_name)
        assert file is not None, f"{tenant}/{name} was checked before"
        return self._directory / file


def listed_secrets(root: Path) -> list[tuple[str, str, Path]]:
    """The tenant, the name and the file of every secret below a directory."""
    own = [(DEFAULT_TENANT, path.name, path) for path in _secrets_in(root)]
    folders = [folder for folder in root.glob("@*") if TENANT_NAME.fullmatch(folder.name.removeprefix("@"))]
    return own + [
        (folder.name.removeprefix("@"), path.name, path) for folder in folders for path in _secrets_in(folder)
    ]


def _secrets_in(folder: Path) -> list[Path]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return []
    return [
        Path(entry.path) for entry in entries if _is_name(entry.name) and entry.is_file(follow_symlinks=False)
    ]


def write_secret(path: Path, content: bytes) -> None:
    """All or nothing: an agent that reads meanwhile sees the old value or the new one."""
    if path.parent.name.startswith("@"):
        path.parent.mkdir(mode=0o700, exist_ok=True)
    # Names of secrets do not begin with a dot.
    beside = path.parent / f".{secrets.token_hex(16)}"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise


def _is_name(name: str) -> bool:
    """Whether it names a secret for jobs, or a credential for Git, which jobs cannot ask for."""
    return SECRET_NAME.fullmatch(name) is not None or is_credential_name(name)


def _named(call: Call) -> tuple[str, str]:
    name = call.params.get("name")
    if not isinstance(name, str) or not _is_name(name):
        raise ApiError(
            "Invalid",
            "The name of a secret must have 1 to 200 letters, digits, '_', '.' or '-', and must not begin with '.' or"
            " '-'; the name of a Git credential is git@HOST, with the host in lower case.",
        )
    return _tenant(call), name


def _tenant(call: Call) -> str:
    """The tenant whose secrets are meant: the key's own, unless an administrator names another."""
    tenant = call.params.get("tenant", call.caller.tenant)
    if not isinstance(tenant, str) or TENANT_NAME.fullmatch(tenant) is None:
        raise ApiError("Invalid", f"tenant must be the name of a tenant, not {str(tenant)[:100]!r}.")
    return tenant
