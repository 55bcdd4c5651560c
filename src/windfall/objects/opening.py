"""From a URI to an open store.

Decides which kind it is, and loads no other one: obstore is only imported where a bucket is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from windfall.objects.credentials import ObjectOptions, resolved
from windfall.objects.errors import BadUri
from windfall.objects.port import ObjectStore, checked_key

#: Names the directory that a daemon keeps its objects in: it made it once, and it is never made again by others.
ANCHOR_VARIABLE = "WINDFALL_OBJECTS_ROOT"


def open_objects(
    uri: str, options: ObjectOptions | None = None, environment: Mapping[str, str] | None = None
) -> ObjectStore:
    """The objects below `file:///absolute/path` or `s3://bucket/prefix`; nothing is asked of the store yet.

    Keys and addresses that the options do not give are looked for in `environment`, this process's own by default.
    """
    parts = urlsplit(uri)
    if parts.query or parts.fragment or "\0" in uri:
        raise BadUri(f"{uri!r} has a query or a fragment: give file:///directory or s3://bucket/prefix alone")
    if parts.scheme == "file":
        anchor = (os.environ if environment is None else environment).get(ANCHOR_VARIABLE)
        return _open_files(uri, parts.netloc, unquote(parts.path), anchor)
    if parts.scheme == "s3":
        return _open_s3(uri, parts.netloc, parts.path, options or ObjectOptions(), environment)
    raise BadUri(f"{uri!r} is no object storage: give file:///directory or s3://bucket/prefix")


def _open_files(uri: str, host: str, path: str, anchor: str | None) -> ObjectStore:
    from windfall.objects.files import FileObjects

    if host not in ("", "localhost") or not path.startswith("/"):
        raise BadUri(f"{uri!r} names a host; write three slashes: file:///absolute/path")
    if ".." in path.split("/"):
        raise BadUri(f"{uri!r} goes upwards; write the path as it is, without ..")
    holds = anchor is not None and Path(path).is_relative_to(anchor)
    return FileObjects(Path(path), uri.rstrip("/"), Path(anchor) if anchor is not None and holds else None)


def _open_s3(
    uri: str, bucket: str, path: str, options: ObjectOptions, environment: Mapping[str, str] | None
) -> ObjectStore:
    if not bucket or "@" in bucket or ":" in bucket:
        raise BadUri(f"{uri!r} names no bucket; write s3://bucket/prefix")
    prefix = path.strip("/")
    if prefix:
        checked_key(prefix)
    found = resolved(options, os.environ if environment is None else environment)
    from windfall.objects.s3 import S3Objects

    return S3Objects(bucket, prefix, found)
