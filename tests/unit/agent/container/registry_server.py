"""A registry of images that serves one image over HTTP, as slowly as a test wants it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.docker_engine import image_archive

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    """What is served, and what was asked."""

    def __init__(self, password: str | None) -> None:
        self.password = password
        #: Half of the layer is sent before this is set.
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked: list[str] = []
        layer, config = _parts()
        packed = gzip.compress(layer, 1)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", **_blob(config)},
            "layers": [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", **_blob(packed)}],
        }
        self.manifest = json.dumps(manifest).encode()
        self.digest = f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"
        self.blobs = {str(_blob(content)["digest"]): content for content in (config, packed)}
        self.port = 0

    def image(self, reference: str = ":1") -> str:
        """How the engine is to name the image."""
        return f"127.0.0.1:{self.port}/team/app{reference}"


def _blob(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "digest": f"sha256:{hashlib.sha256(content).hexdigest()}"}


def _parts() -> tuple[bytes, bytes]:
    """Return a layer that no engine has seen, and its description."""
    with tarfile.open(fileobj=io.BytesIO(image_archive("any:1", {}, os.urandom(3_000_000)))) as tar:
        parts = []
        for name in ("layer.tar", "config.json"):
            file = tar.extractfile(name)
            assert file is not None
            parts.append(file.read())
    return parts[0], parts[1]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: Registry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def _answer(self, *, with_body: bool) -> None:
        registry, name = self.server.registry, self.path.rpartition("/")[2]
        registry.asked.append(self.path)
        status, content, kind = 200, b"{}", "application/json"
        if registry.password is not None and self.headers.get("Authorization") != registry.password:
            status = 401
        elif "/manifests/" in self.path and name in ("1", registry.digest):
            content, kind = registry.manifest, _MANIFEST
        elif name in registry.blobs:
            content, kind = registry.blobs[name], "application/octet-stream"
        elif self.path != "/v2/":
            status = 404
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", str(_blob(content)["digest"]))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="tests"')
        self.end_headers()
        if with_body:
            self._send(content)

    def _send(self, content: bytes) -> None:
        half = len(content) // 2 if len(content) > 100_000 else 0
        self.wfile.write(content[:half])
        self.wfile.flush()
        if half:
            self.server.registry.go_on.wait(60)
        self.wfile.write(content[half:])


@contextmanager
def serving(password: str | None = None) -> Iterator[Registry]:
    """Serve the image until the end of the block."""
    registry = Registry(password)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.registry = registry
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
