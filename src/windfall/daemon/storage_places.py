"""AddStorage, ListStorage and RemoveStorage: the places that jobs of submit keys may use beyond their tenant's own.

Reads this host's file system, which the core may not: where links lead, and what a directory is. Must not know jobs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call
from windfall.control.commands.storage import AddStorage, RemoveStorage
from windfall.control.ports import CorePort
from windfall.daemon.errors import DaemonError
from windfall.daemon.object_storage import ObjectStorage
from windfall.jobs.errors import NotFound, Rejected
from windfall.jobs.storage import FILE, S3, BadLocation, Location, StoragePlace, locate

#: Access to any of these gives control of the host.
_SYSTEM = tuple(
    Path(path)
    for path in ("/etc", "/proc", "/sys", "/dev", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64")
)


class StoragePlaces:
    """The operations, over the control loop and this daemon's storage."""

    def __init__(self, loop: CorePort, objects: ObjectStorage) -> None:
        self._loop = loop
        self._objects = objects

    async def add(self, call: Call) -> dict[str, Any]:
        """Register a place; with the daemon's own S3 server its bucket is made if it is missing."""
        place = StoragePlace(_uri(call), call.params.get("write") is True, _tenant(call))
        try:
            location = locate(place.uri)
        except BadLocation as problem:
            raise ApiError("Invalid", str(problem)) from None
        note = await asyncio.to_thread(self._looked_at, place.uri, location)
        try:
            added: StoragePlace = await self._loop.execute(AddStorage(place))
        except Rejected as refusal:
            raise ApiError("Invalid", str(refusal)) from None
        if location.scheme == S3 and self._objects.layout.serves_s3:
            try:
                await asyncio.to_thread(self._objects.make_bucket, location.segments[0])
            except (DaemonError, OSError) as error:
                note = f"the bucket could not be made: {error}; make it yourself"
        return {**_shown(added), "note": note}

    async def list(self, call: Call) -> dict[str, Any]:
        """All places for an admin key; for others those of their tenant, and the tenant's own."""
        caller, layout = call.caller, self._objects.layout
        places = await self._loop.read(lambda store: store.declared(StoragePlace))
        if caller.role is not Role.ADMIN:
            places = [place for place in places if place.tenant in (None, caller.tenant)]
        own = (layout.checkpoint_root(caller.tenant), layout.bucket_root(caller.tenant))
        return {
            "places": [
                _shown(place) for place in sorted(places, key=lambda place: (place.uri, place.tenant or ""))
            ],
            "tenant": caller.tenant,
            "own": [uri for uri in own if uri is not None],
        }

    async def remove(self, call: Call) -> dict[str, Any]:
        """Remove a place; later attempts of jobs that name it are refused."""
        try:
            await self._loop.execute(RemoveStorage(_uri(call), _tenant(call)))
        except NotFound as refusal:
            raise ApiError("NotFound", str(refusal), 404) from None
        return {}

    def _looked_at(self, uri: str, location: Location) -> str | None:
        """Refuse a place that would give jobs control of the host; returns a warning about other places."""
        if location.scheme != FILE:
            return None
        path = Path(location.path)
        real = path.resolve()
        if self._objects.layout.is_private(locate(real.as_uri())):
            raise ApiError(
                "Invalid",
                f"{uri} is {real}, which contains or is inside the daemon's own directory; register one elsewhere.",
            )
        if any(real.is_relative_to(system) or system.is_relative_to(real) for system in _SYSTEM):
            raise ApiError(
                "Invalid", f"{uri} is a system directory, or contains one; register a directory for data."
            )
        if Path.home().resolve().is_relative_to(real):
            raise ApiError(
                "Invalid", f"{uri} contains the daemon user's home directory; register a directory inside it."
            )
        if not path.is_dir():
            return f"the directory {path} does not exist on this host yet; it is made when something is stored there"
        return None


def _uri(call: Call) -> str:
    uri = call.params.get("uri")
    if not isinstance(uri, str) or not uri:
        raise ApiError("Invalid", "uri is required, as file:///directory or s3://bucket/prefix.")
    return uri if uri.endswith("://") or uri == "file:///" else uri.rstrip("/")


def _tenant(call: Call) -> str | None:
    tenant = call.params.get("tenant")
    if tenant is not None and (not isinstance(tenant, str) or not tenant):
        raise ApiError("Invalid", "tenant must be the name of a tenant; leave it out for every tenant.")
    return tenant


def _shown(place: StoragePlace) -> dict[str, Any]:
    return {"uri": place.uri, "write": place.write, "tenant": place.tenant}
