"""From a URI to an open store.

Decides which kind it is, and loads no other one: obstore is only imported where a bucket is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windfall.jobs.storage import FILE, S3, BadLocation, Location, locate
from windfall.objects.credentials import ObjectOptions, resolved
from windfall.objects.errors import BadUri
from windfall.objects.port import ObjectStore

#: Names the directory that a daemon keeps its objects in: it made it once, and it is never made again by others.
ANCHOR_VARIABLE = "WINDFALL_OBJECTS_ROOT"


def open_objects(
    uri: str,
    options: ObjectOptions | None = None,
    environment: Mapping[str, str] | None = None,
    base: Path | None = None,
) -> ObjectStore:
    """The objects below `file:///absolute/path` or `s3://bucket/prefix`; nothing is asked of the store yet.

    Keys and addresses that the options do not give are looked for in `environment`, this process's own by default.
    Below `base`, a directory at or above that of a file:// URI, no link is followed.
    """
    location = located(uri)
    if location.scheme == FILE:
        anchor = (os.environ if environment is None else environment).get(ANCHOR_VARIABLE)
        return _open_files(uri, Path(location.path), anchor, base)
    bucket, *prefix = location.segments
    completed = resolved(options or ObjectOptions(), os.environ if environment is None else environment)
    from windfall.objects.s3 import S3Objects

    return S3Objects(bucket, "/".join(prefix), completed)


def located(uri: str) -> Location:
    """What a URI names; BadUri where that is nothing that can be opened."""
    try:
        location = locate(uri)
    except BadLocation as problem:
        raise BadUri(str(problem)) from None
    if location.scheme == S3 and not location.segments:
        raise BadUri(f"{uri!r} names no bucket; write s3://bucket/prefix")
    return location


def _open_files(uri: str, path: Path, anchor: str | None, base: Path | None) -> ObjectStore:
    from windfall.objects.files import FileObjects

    holds = anchor is not None and path.is_relative_to(anchor)
    return FileObjects(path, uri.rstrip("/"), Path(anchor) if anchor is not None and holds else None, base)
