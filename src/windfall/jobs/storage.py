"""Which object storage a job may use: what its tenant owns, and what an administrator registered.

Values and comparisons of URIs. Decides what a URI names and whether a grant covers it. Must not open anything, nor know
keys of storage; links on a disk are the concern of the code that opens a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from windfall.jobs.staging import Staging
from windfall.jobs.submitters import DEFAULT_TENANT

FILE, S3 = "file", "s3"
#: Every bucket of this daemon's own S3 server.
ALL_BUCKETS = "s3://"
_TENANTS, _CHECKPOINTS, _BUCKETS = "tenants", "checkpoints", "buckets"
_URI = re.compile(r"(file|s3)://([^/]*)(.*)", re.DOTALL)
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")


class BadLocation(ValueError):
    """The text names no place in object storage; it says what to write instead."""


class Location(NamedTuple):
    """What a URI names. A bucket is the first segment of an S3 location."""

    scheme: str
    segments: tuple[str, ...]

    def is_below(self, other: Location) -> bool:
        """Whether it is the other one, or something in it."""
        return self.scheme == other.scheme and self.segments[: len(other.segments)] == other.segments

    def below(self, key: str) -> Location:
        """An object in it, by its key; a key is never decoded."""
        return Location(self.scheme, (*self.segments, *key.split("/")))

    @property
    def path(self) -> str:
        """The path of a file location."""
        return "/" + "/".join(self.segments)


@lru_cache(1024)
def locate(uri: str) -> Location:
    """Read a URI as everything that opens storage does; BadLocation for what could be understood in two ways."""
    if uri == ALL_BUCKETS:
        return Location(S3, ())
    match = _URI.fullmatch(uri)
    if match is None:
        raise BadLocation(f"{uri!r} is not object storage: give file:///directory or s3://bucket/prefix")
    scheme, host, path = match.groups()
    if any(letter in "?#" or letter < " " or letter == "\x7f" for letter in uri):
        raise BadLocation(
            f"{uri!r} has a query, a fragment or a control character:"
            " give file:///directory or s3://bucket/prefix alone"
        )
    if scheme == FILE:
        if host not in ("", "localhost") or not path:
            raise BadLocation(f"{uri!r} names a host; write three slashes: file:///absolute/path")
        segments = [part for part in _decoded(path).split("/") if part not in ("", ".")]
        if "\0" in "".join(segments):
            raise BadLocation(f"{uri!r} holds a zero byte")
    else:
        if not host or "@" in host or ":" in host or host in (".", ".."):
            raise BadLocation(f"{uri!r} names no bucket; write s3://bucket/prefix")
        inside = path.strip("/")
        segments = [host, *(inside.split("/") if inside else ())]
        if any(part in ("", ".") for part in segments):
            raise BadLocation(f"{uri!r} has an empty part or a dot as a part; write s3://bucket/prefix")
    if ".." in segments:
        raise BadLocation(f"{uri!r} goes upwards; write the path as it is, without ..")
    return Location(scheme, tuple(segments))


def _decoded(path: str) -> str:
    plain = _ENCODED.sub(lambda match: bytes([int(match[1], 16)]), path.encode("utf-8", "surrogateescape"))
    return plain.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Grant:
    """A place that an attempt may read, and everything below it."""

    uri: str
    write: bool = False
    #: Places below it that are not granted with it.
    but_not: tuple[str, ...] = ()

    def covers(self, wanted: Location) -> bool:
        """Whether a place, with all that is in it, lies inside and touches nothing that is left out."""
        if not wanted.is_below(locate(self.uri)):
            return False
        left_out = map(locate, self.but_not)
        return not any(wanted.is_below(place) or place.is_below(wanted) for place in left_out)


def allowed(grants: Sequence[Grant] | None, uri: str, write: bool) -> bool:
    """Whether the grants cover a URI; no grants at all (None) is the freedom of an admin key."""
    if grants is None:
        return True
    try:
        return covering(grants, locate(uri), write) is not None
    except BadLocation:
        return False


def covering(grants: Sequence[Grant], wanted: Location, write: bool) -> Grant | None:
    """The widest grant that covers a place, if one does."""
    fitting = [grant for grant in grants if (grant.write or not write) and grant.covers(wanted)]
    return min(fitting, key=lambda grant: len(locate(grant.uri).segments), default=None)


def not_allowed(uri: str, write: bool) -> str:
    """What to tell somebody whose grants do not cover a URI."""
    doing, option = ("write to", " --write") if write else ("read", "")
    return (
        f"this job may not {doing} {uri}: it belongs neither to its tenant nor to a place that was registered for it;"
        f" an administrator can register it with `windfall storage add {uri}{option}`"
    )


@dataclass(frozen=True, slots=True)
class StorageAccess:
    """What an attempt may use, and what bucket names mean to it."""

    #: None means everything that the daemon's user can reach: the job was submitted with an admin key.
    grants: tuple[Grant, ...] | None = None
    #: The directory, as a URI, that holds the tenant's buckets; None where buckets are a real S3's.
    bucket_root: str | None = None
    #: Whether it keeps a Git repository of this host that it named before such were refused.
    keeps_local_repository: bool = False
    #: Whether its programs get credentials for it, as those of a job with a role do.
    for_programs: bool = False

    @property
    def may_clone_locally(self) -> bool:
        """Whether it may name Git repositories by paths of the host."""
        return self.grants is None or self.keeps_local_repository

    def resolved(self, uri: str) -> str:
        """Where a URI that the job's own files name is found."""
        return object_uri(uri, self.bucket_root)


def object_uri(uri: str, bucket_root: str | None) -> str:
    """Where the object store has what AWS's URI names."""
    if bucket_root is None or not uri.startswith("s3://"):
        return uri
    return f"{bucket_root.rstrip('/')}/{uri.removeprefix('s3://')}"


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """A place that an administrator has registered for the jobs of submit keys."""

    uri: str
    write: bool = False
    #: None means every tenant.
    tenant: str | None = None

    @property
    def key(self) -> str:
        """What it is stored under: one entry for a place and a tenant. No tenant's name holds a space."""
        return f"{self.tenant or '*'} {self.uri}"


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """Where a daemon keeps objects, and which parts of it are which tenant's own."""

    #: The root of its objects: a file:// or s3:// URI. None means that it keeps none.
    root: str | None = None
    #: Where `buckets` and `tenants` lie when buckets are directories; None where there is an S3.
    bucket_home: str | None = None
    #: Whether its own S3 server holds the buckets, so that they are its to give away.
    serves_s3: bool = False
    #: Whether its S3 gives temporary credentials to the programs of jobs.
    gives_sessions: bool = False
    #: Directories of its own, as URIs, of which only `root` and `bucket_home` may ever be used by jobs.
    private: tuple[str, ...] = ()

    def checkpoint_root(self, tenant: str) -> str | None:
        """Where the checkpoints of jobs go that name no place of their own."""
        return None if self.root is None else f"{_home(self.root, tenant)}/{_CHECKPOINTS}"

    def bucket_root(self, tenant: str) -> str | None:
        """Where `s3://bucket` of a tenant is a directory; None where there is an S3."""
        return None if self.bucket_home is None else f"{_home(self.bucket_home, tenant)}/{_BUCKETS}"

    def why_no_credentials(self, *, is_admin: bool) -> str | None:
        """Why the programs of a job with a role get no credentials for S3; None if they do."""
        if self.bucket_home is not None:
            return "there is no S3: see windfall up --s3"
        # Those who could read the daemon's keys anyway get them.
        return None if self.gives_sessions or is_admin else "the setting job_role is missing"

    def is_private(self, place: Location) -> bool:
        """Whether a place holds, or lies in, what is the daemon's own and no job's."""
        own = [locate(uri) for uri in (self.root, self.bucket_home) if uri is not None]
        if any(place.is_below(root) for root in own):
            return False
        return any(place.is_below(part) or part.is_below(place) for part in map(locate, self.private))

    def is_whole(self, place: Location) -> bool:
        """Whether a place holds parts of several tenants."""
        homes = [locate(f"{uri}/{_TENANTS}") for uri in (self.root, self.bucket_home) if uri is not None]
        return any(home.is_below(place) for home in homes)

    def grants(self, tenant: str, places: tuple[StoragePlace, ...]) -> tuple[Grant, ...]:
        """All that the jobs of a tenant's submit keys may use."""
        own = [self.checkpoint_root(tenant), self.bucket_root(tenant)]
        grants = [Grant(uri, write=True) for uri in own if uri is not None]
        if self.serves_s3 and tenant == DEFAULT_TENANT:
            grants.append(Grant(ALL_BUCKETS, write=True, but_not=self._of_others(tenant, places)))
        grants += [
            Grant(place.uri, place.write)
            for place in places
            if place.tenant in (None, tenant) and self._may_be_given(locate(place.uri))
        ]
        return tuple(grants)

    def _may_be_given(self, place: Location) -> bool:
        """Looked at again because the daemon's directories may have moved since the place was registered."""
        return not (self.is_private(place) or self.is_whole(place))

    def _of_others(self, tenant: str, places: Sequence[StoragePlace]) -> tuple[str, ...]:
        """What of all buckets is not the default tenant's: other tenants' own, and what is registered for them."""
        reserved = (
            [f"{self.root}/{_TENANTS}"] if self.root is not None and self.root.startswith("s3://") else []
        )
        theirs = {place.uri for place in places if place.tenant not in (None, tenant)}
        shared = {place.uri for place in places if place.tenant in (None, tenant)}
        return (*reserved, *sorted(uri for uri in theirs - shared if uri.startswith("s3://")))


def _home(root: str, tenant: str) -> str:
    root = root.rstrip("/")
    return root if tenant == DEFAULT_TENANT else f"{root}/{_TENANTS}/{tenant}"


#: What a machine must reach for a job: files of the daemon's host, or the S3 that the daemon uses.
FILES, BUCKETS = "files", "s3"


def storage_needs(staging: Staging | None, directory: str | None = None) -> tuple[str, ...]:
    """What the machine of an attempt must reach; `directory` is one of the daemon's host that it starts in.

    Every machine has a root directory.
    """
    directory = None if directory == "/" else directory
    uris = () if staging is None else tuple(uri for uri, _ in uses_of(staging))
    if staging is not None and staging.git is not None and staging.git.url.startswith("/"):
        uris = (*uris, f"file://{staging.git.url}")
    if not uris and directory is None:  # as most are
        return ()
    files = directory is not None or any(uri.startswith("file:") for uri in uris)
    buckets = any(uri.startswith("s3:") for uri in uris)
    return (*([FILES] if files else ()), *([BUCKETS] if buckets else ()))


def uses_of(staging: Staging) -> Iterator[tuple[str, bool]]:
    """The URIs that are named for an attempt, and whether something is written there."""
    if staging.checkpoints is not None:
        yield staging.checkpoints.uri, True
    for archive in staging.archives:
        yield archive.uri, False
    for channel in staging.channels:
        yield channel.uri, False
    for output in staging.outputs:
        yield output.uri, True
