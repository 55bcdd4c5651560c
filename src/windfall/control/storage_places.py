"""Registered places of object storage: who may use what beyond its tenant's own.

Decides what can be registered. Must not look whether a place exists.
"""

from __future__ import annotations

import re

from windfall.control.commands.storage import AddStorage, RemoveStorage
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.storage import S3, BadLocation, StoragePlace, locate
from windfall.jobs.tenants import TENANT_NAME

PLACES_MAX = 1000
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def on_add_storage(state: State, command: AddStorage, round_: Round) -> StoragePlace:
    """Register a place; jobs that are submitted, and attempts that start, from now on may use it."""
    place, layout = command.place, state.rules.storage
    if place.tenant is not None and not TENANT_NAME.fullmatch(place.tenant):
        raise Invalid(f"{place.tenant!r} cannot be a tenant; `windfall keys list` shows those that there are")
    try:
        location = locate(place.uri)
    except BadLocation as problem:
        raise Invalid(str(problem)) from None
    if location.scheme == S3 and not (location.segments and _BUCKET.fullmatch(location.segments[0])):
        raise Invalid(
            f"{place.uri!r} names no bucket: it has 3 to 63 lower-case letters, digits, '.' and '-', as in"
            " s3://bucket/prefix"
        )
    if location.scheme == S3 and layout.bucket_home is not None:
        raise Invalid(
            f"{place.uri} would be no place here: this daemon has no S3, and each tenant's buckets are directories of"
            " its own; register the directory that you mean, as file:///directory"
        )
    if layout.is_private(location):
        raise Invalid(
            f"{place.uri} holds, or lies in, the daemon's own directory, where its keys and its store are; register a"
            " directory elsewhere"
        )
    if layout.is_whole(location):
        raise Invalid(f"{place.uri} holds what belongs to several tenants; register a directory in it")
    if place.key not in state.storage_places and len(state.storage_places) >= PLACES_MAX:
        raise Conflict(f"Maximum number of storage places ({PLACES_MAX}) reached; remove one first")
    state.storage_places[place.key] = round_.changes.declared[StoragePlace, place.key] = place
    return place


def on_remove_storage(state: State, command: RemoveStorage, round_: Round) -> None:
    """Take a place back."""
    key = StoragePlace(command.uri, tenant=command.tenant).key
    if key not in state.storage_places:
        owner = "every tenant" if command.tenant is None else f"tenant {command.tenant}"
        raise NotFound(f"{command.uri} is not registered for {owner}; `windfall storage list` shows what is")
    del state.storage_places[key]
    round_.changes.declared[StoragePlace, key] = None
