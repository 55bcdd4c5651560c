"""Which store a data directory belongs to: a small file in it that names the store.

The agent of a data directory runs the jobs of one store. A daemon with another store, or with an empty one, would stop
them all as unknown, so it is refused before it touches anything. A directory without the file is bound to the first
store that it is started with. Must not know how a store keeps its identity.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from windfall.daemon.errors import DaemonError
from windfall.daemon.settings import Settings
from windfall.store.errors import OtherStore
from windfall.store.opening import open_store
from windfall.store.sql_store import SqlStore

CLAIM_NAME = "store-identity.json"


class StoreClaim(msgspec.Struct, frozen=True):
    """The store that a data directory belongs to."""

    identity: str
    #: Where it was last opened, without a password.
    where: str


def open_own_store(settings: Settings) -> SqlStore:
    """Open the store of a data directory; DaemonError if the settings name another one, or it is missing."""
    claim = read_claim(settings.data)
    try:
        return open_store(settings.store_url, expected=None if claim is None else claim.identity)
    except OtherStore as other:
        assert claim is not None
        raise DaemonError(_refusal(settings.data, claim, other)) from None


def keep_claim(data: Path, store: SqlStore) -> None:
    """Record that the directory belongs to this store; the caller must hold the directory's lock."""
    claim = read_claim(data)
    mine = StoreClaim(store.identity, store.where)
    if claim == mine:
        return
    if claim is not None and claim.identity != mine.identity:
        raise DaemonError(_refusal(data, claim, OtherStore(store.where, store.identity)))
    fresh = data / f".{CLAIM_NAME}.{os.getpid()}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, msgspec.json.encode(mine) + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    fresh.rename(data / CLAIM_NAME)


def read_claim(data: Path) -> StoreClaim | None:
    """The store that the directory belongs to; None if it has not been used with any."""
    path = data / CLAIM_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=StoreClaim)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DaemonError(
            f"{path} is damaged ({error}), so it is not known which store {data} belongs to;"
            " remove it if --store (or the default) names the right one"
        ) from None


def _refusal(data: Path, claim: StoreClaim, other: OtherStore) -> str:
    if other.identity is None and claim.where == other.where:
        return (
            f"the store {other.where} of the data directory {data} is missing or empty. Put the file back, for example"
            f" from a backup. To begin with an empty store on purpose, remove {data / CLAIM_NAME}:"
            " jobs that still run are stopped then"
        )
    how = (
        "leave out --store" if claim.where == str(data / "store" / "windfall.db") else "name it with --store"
    )
    state = "another store" if other.identity is not None else "missing or empty"
    return (
        f"the data directory {data} belongs to the store {claim.where}; {other.where} is {state}."
        f" To use that store, {how}; to use {other.where}, give another --data DIR."
        f" If {claim.where} is gone for good, remove {data / CLAIM_NAME}: jobs that still run are stopped then"
    )
