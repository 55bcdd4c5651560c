"""EC2's metadata service as far as spot notices go, on an address of the test's own: asks for a session token first."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

TOKEN = "AQAAAexample=="
ACTION, REBALANCE = (
    "/latest/meta-data/spot/instance-action",
    "/latest/meta-data/events/recommendations/rebalance",
)


class MetadataServer:
    """Answers 404 for what is not in `says`, and 401 to requests without its token."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.says: dict[str, str] = {}
        #: What was asked for, in order.
        self.asked: list[str] = []
        self.gives_tokens = True
        self._server = ThreadingHTTPServer((address, port), self._handler())

    @property
    def address(self) -> str:
        """What a setting names."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> MetadataServer:
        threading.Thread(target=self._server.serve_forever, name="metadata server", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                has_ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit()
                given = metadata.gives_tokens and has_ttl and self.path == "/latest/api/token"
                self._answer(200 if given else 403, TOKEN if given else "")

            def do_GET(self) -> None:
                metadata.asked.append(self.path)
                if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
                    self._answer(401, "")
                    return
                text = metadata.says.get(self.path)
                self._answer(404 if text is None else 200, text or "")

            def _answer(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
