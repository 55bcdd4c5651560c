"""Objects in a bucket, through obstore: what `s3://` means.

Decides how the port's words become requests and how their failures are called. obstore does the signing, the parallel
parts and short retries; the caller decides about long waits. Must not know what is stored.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.store import S3Store

from windfall.objects.credentials import DEFAULT_REGION, ObjectOptions, is_loopback
from windfall.objects.errors import (
    AlreadyThere,
    BadUri,
    Full,
    NotFound,
    ObjectsError,
    Refused,
    Unreachable,
)
from windfall.objects.port import Content, Entry, LocalPath, checked_key

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential  # exist for type checkers alone

_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
_DELETE_AT_ONCE = 1000
_CONNECT_S = 5
#: Of one request: a part over a slow line must fit.
_REQUEST_S = 120
_RETRY_S = 4
_NO_ROOM = re.compile(
    r"InsufficientStorage|QuotaExceeded|EntityTooLarge|\b507\b|[Nn]o space left|[Nn]o free volumes"
)
_DENIED = re.compile(r"\b40[13] |AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken")
_ASKED_THE_MACHINE = re.compile(r"169\.254\.169\.254|169\.254\.170|CredentialsNotLoaded|MissingCredentials")


class S3Objects:
    """Objects below a prefix of one bucket."""

    def __init__(self, bucket: str, prefix: str, options: ObjectOptions) -> None:
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._where = options.endpoint_url or f"AWS in {options.region}"
        config: S3Config = {"region": options.region or DEFAULT_REGION}
        if options.endpoint_url:
            config["aws_endpoint_url_s3"] = options.endpoint_url
        # Hashing every body for the signature costs a core; TLS or the loopback already keeps it whole, and
        # a caller that must be sure hashes the content.
        unsigned = options.endpoint_url is None or not options.endpoint_url.startswith("http://")
        unsigned = unsigned or is_loopback(options.endpoint_url or "")
        self._store = S3Store(
            bucket,
            config=config,
            client_options={
                "allow_http": True,  # checked in credentials.py, with a text that says what to do
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=_REQUEST_S),
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_RETRY_S)},
            unsigned_payload=unsigned,
            credential_provider=_fixed_keys(options),
        )

    def get(self, key: str) -> bytes:
        """The whole object."""
        with self._translated(key):
            return bytes(obstore.get(self._store, self._full(key)).bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of an object."""
        if end <= start:
            return b""
        with self._translated(key):
            try:
                return bytes(obstore.get_range(self._store, self._full(key), start=start, end=end))
            except exceptions.BaseError as error:
                if "416" in str(error) or "InvalidRange" in str(error):
                    return b""
                raise

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        """Write one object."""
        whole = create_only or len(content) <= _PART_BYTES
        with self._translated(key):
            obstore.put(
                self._store,
                self._full(key),
                content,
                mode="create" if create_only else "overwrite",
                use_multipart=False if whole else None,
                chunk_size=_PART_BYTES,
            )

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write one object from pieces as they come."""
        with self._translated(key):
            obstore.put(
                self._store,
                self._full(key),
                iter(pieces),
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def put_file(self, key: str, path: LocalPath) -> int:
        """Write a local file, large ones in parallel parts."""
        size = Path(path).stat().st_size
        with self._translated(key):
            obstore.put(
                self._store,
                self._full(key),
                Path(path),
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        return size

    def get_file(self, key: str, path: LocalPath) -> int:
        """Bring an object to a local path."""
        target = Path(path)
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            with open(partial, "wb") as file, self._translated(key):
                size = self._stream_into(key, file)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return size

    def get_into(self, key: str, descriptor: int) -> int:
        """Bring an object into an open file."""
        with self._translated(key), open(descriptor, "wb", closefd=False) as file:
            return self._stream_into(key, file)

    def _stream_into(self, key: str, file: IO[bytes]) -> int:
        """Bytes as they come; a stream that ends early is a fault, not a short object."""
        response = obstore.get(self._store, self._full(key))
        size = int(response.meta["size"])
        done = 0
        for piece in response.stream(min_chunk_size=4 << 20):
            file.write(piece)
            done += len(piece)
        if done != size:
            raise Unreachable(f"{self.uri}/{key} ended after {done} of {size} bytes; try again")
        return size

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix of whole segments."""
        below = (self._prefix + prefix).rstrip("/") or None
        with self._translated(prefix):
            for batch in obstore.list(self._store, below, chunk_size=1000):
                for meta in batch:
                    yield self._entry(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def head(self, key: str) -> Entry | None:
        """What is known of one object."""
        try:
            with self._translated(key):
                meta = obstore.head(self._store, self._full(key))
        except NotFound:
            return None
        return self._entry(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def copy(self, source: str, target: str) -> None:
        """A second object with the same content, made by the server."""
        with self._translated(source):
            obstore.copy(self._store, self._full(source), self._full(target))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, a thousand to a request."""
        batch = [self._full(key) for key in keys]
        for start in range(0, len(batch), _DELETE_AT_ONCE):
            with contextlib.suppress(NotFound), self._translated(batch[start]):
                obstore.delete(self._store, batch[start : start + _DELETE_AT_ONCE])

    def _full(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _entry(self, path: str, size: int, seconds: float) -> Entry:
        return Entry(path.removeprefix(self._prefix), size, int(seconds * 1000))

    @contextlib.contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._error(error, key) from error

    def _error(self, error: Exception, key: str) -> ObjectsError:
        # The first line is the story; what follows is the structure of obstore's own error.
        story = str(error).split("\n\nDebug source", 1)[0].strip()
        what = f"{self.uri}, {key!r} at {self._where}: {story[:400]}"
        if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            return AlreadyThere(f"{self.uri}/{key} was put there before")
        if "NoSuchBucket" in story:
            return NotFound(f"{what}; make the bucket first, or give one that exists")
        if isinstance(error, FileNotFoundError):
            return NotFound(f"{self.uri}/{key} is not there")
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Full(
                f"{os.strerror(error.errno)} on this machine while bringing {self.uri}/{key}; make room"
            )
        if isinstance(error, OSError | ValueError):
            return BadUri(f"{what}")
        if _NO_ROOM.search(story):
            return Full(f"{what}; make room in that store")
        if _ASKED_THE_MACHINE.search(story):
            return Refused(
                f"no credentials were found for {self.uri}; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
            )
        denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
        if denied or _DENIED.search(story):
            return Refused(f"{what}; check the keys and what they are allowed to do")
        return Unreachable(f"{what}; see that the address is right and the server runs")


def _fixed_keys(options: ObjectOptions) -> Callable[[], S3Credential] | None:
    """The keys as a provider: given as plain options, they would be mixed with a stray token of the environment."""
    if not (options.access_key_id and options.secret_access_key):
        return None
    keys: S3Credential = {
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "token": options.session_token,
        "expires_at": None,
    }
    return lambda: keys
