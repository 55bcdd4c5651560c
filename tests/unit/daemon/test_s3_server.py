"""The S3 server that a daemon starts: how it is asked while it restarts. The rest runs in tests/acceptance."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from windfall.daemon.s3_server import S3Server
from windfall.daemon.seaweedfs import S3ServerError


@contextmanager
def a_server(directory: Path, *statuses: int) -> Iterator[tuple[S3Server, list[str]]]:
    """A server that answers with these statuses in turn, and then always with the last; and what it was asked."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked.append(self.path)
            self.send_response(statuses[min(len(asked), len(statuses)) - 1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as http:
        serving = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        running = {"pid": 1, "started_ticks": 0, "ports": {"s3": http.server_port}}
        (directory / "server.json").write_text(json.dumps(running))
        try:
            yield S3Server(directory), asked
        finally:
            http.shutdown()
            serving.join()


def test_a_server_that_restarts_is_waited_for(tmp_path: Path):
    with a_server(tmp_path, 500, 503, 200) as (server, asked):
        server.make_bucket("vision")
    assert asked == ["/vision"] * 3


def test_a_server_that_is_away_is_asked_again(tmp_path: Path):
    with a_server(tmp_path, 409) as (server, _):
        server.make_bucket("vision")
    with pytest.raises(S3ServerError, match=r"cannot make bucket vision: .*refused.*or try again later"):
        server.make_bucket("vision", timeout_s=0)


def test_what_will_not_change_is_said_at_once(tmp_path: Path):
    with (
        a_server(tmp_path, 403) as (server, asked),
        pytest.raises(S3ServerError, match="SeaweedFS answered 403"),
    ):
        server.make_bucket("vision")
    assert len(asked) == 1


def test_a_server_that_was_never_started_has_no_buckets(tmp_path: Path):
    with pytest.raises(S3ServerError, match="never started"):
        S3Server(tmp_path).make_bucket("vision")
