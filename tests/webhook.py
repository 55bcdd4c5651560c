"""A real HTTP server that events are posted to, and that a test can make fail or hang up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What was posted, and what is answered."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refused = 0
        #: Answered to everything, or to the events of one job; None hangs up without an answer.
        self.status: int | None = 200
        self.statuses: dict[str, int] = {}
        #: Whether it closes every connection after an answer, without a word.
        self.closes = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?key=s3cret"

    def states_of(self, job_id: str) -> list[str]:
        """The states that a job was told to be in, each event counted once."""
        seen: dict[str, str] = {}
        for event in self.events:
            if event["detail"]["jobId"] == job_id and event["detail-type"] == "Batch Job State Change":
                seen.setdefault(event["id"], event["detail"]["status"])
        return list(seen.values())


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of this host."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = receiver.statuses.get(event["detail"]["jobId"], receiver.status)
            if status is None:
                receiver.refused += 1
                self.close_connection = True
                return
            if status == 200:
                receiver.events.append(event)
                receiver.headers.append(dict(self.headers))
            else:
                receiver.refused += 1
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
            self.close_connection = self.close_connection or receiver.closes

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
