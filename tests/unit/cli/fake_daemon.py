"""A daemon that records what it is asked and answers what the test says, over real HTTP."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from windfall.aws_api.protocol.keys import Key, ensure_keys_file
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.sigv4 import verify
from windfall.daemon.directory import DataDirectory

Answers = dict[str, Any]


@dataclass
class Asked:
    """One request, its signature verified."""

    operation: str
    params: dict[str, Any]
    service: str
    access_key_id: str


@dataclass
class FakeDaemon:
    """Where it listens, what it was asked, and its answers by operation: values, errors or functions."""

    url: str
    directory: Path
    key: Key
    answers: Answers = field(default_factory=lambda: {"Owners": {"owners": {}}})
    asked: list[Asked] = field(default_factory=list)

    def params_of(self, operation: str) -> list[dict[str, Any]]:
        return [one.params for one in self.asked if one.operation == operation]


@dataclass(frozen=True)
class Error:
    """An error answer."""

    code: str
    message: str
    status: int = 400


@contextlib.contextmanager
def fake_daemon(directory: Path, clock: Callable[[], float]) -> Iterator[FakeDaemon]:
    """Serve until the end of the block, with a data directory as a real daemon has it."""
    place = DataDirectory(directory)
    place.prepare()
    key = ensure_keys_file(place.keys, now=1)[0]
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    daemon = FakeDaemon(f"http://127.0.0.1:{server.server_port}", directory, key)
    server.RequestHandlerClass = _handler(daemon, clock)
    server.daemon_threads = True
    place.write_address(daemon.url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield daemon
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=120)


def _handler(daemon: FakeDaemon, clock: Callable[[], float]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower().encode(): value.encode() for name, value in self.headers.items()}
            signer = verify(
                HttpRequest("POST", self.path, "", headers, body),
                {daemon.key.access_key_id: daemon.key}.get,
                clock(),
            )
            target = self.headers.get("x-amz-target")
            operation = target.partition(".")[2] if target else self.path.rpartition("/")[2]
            params = json.loads(body)
            daemon.asked.append(Asked(operation, params, signer.service, signer.key.access_key_id))
            answer = daemon.answers.get(operation, Error("Unknown", f"no answer for {operation}", 404))
            if callable(answer):
                answer = answer(params)
            status = 200
            if isinstance(answer, Error):
                status, answer = answer.status, {"__type": answer.code, "message": answer.message}
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object):
            pass

    return Handler
