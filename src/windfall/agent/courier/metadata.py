"""Serves instance metadata over HTTP: a port of its own for each attempt, on the loopback interface.

Decides nothing about the answers (imds.py does). Standard library only, a thread per connection: a job asks every few
seconds.
"""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Protocol

from windfall.agent.courier.imds import Reply

LOOPBACK = "127.0.0.1"
_IDLE_S = 30.0


class Answering(Protocol):
    """What has the answers."""

    def answer(self, method: str, path: str, headers: Mapping[str, str], now: float) -> Reply:
        """Answer one request; header names are in lower case."""


#: Finds what answers a peer; None when it is nobody's that is known.
Finder = Callable[[tuple[str, int]], Answering | None]


class MetadataServer:
    """One listening address."""

    def __init__(self, address: tuple[str, int], find: Finder) -> None:
        self._server = _Server(address, find)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metadata", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], find: Finder) -> None:
        self.find = find
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "EC2ws"
    sys_version = ""
    timeout = _IDLE_S

    def _respond(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        length = self.headers.get("content-length", "0")
        if length.isdigit() and 0 < int(length) <= 1 << 16:
            self.rfile.read(int(length))
        service = server.find((self.client_address[0], int(self.client_address[1])))
        if service is None:
            reply = Reply(403, "Forbidden")
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = service.answer(self.command, self.path, headers, time.monotonic())
        body = reply.body.encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _respond  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own signature
        """Say nothing: a job asks every few seconds."""
