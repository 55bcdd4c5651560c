"""Dead letters: a line of a file, or a post; a webhook that refuses loses nothing; no name leaves the directory."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from windfall.control.commands.calendar import DeadLetterWritten
from windfall.control.instructions import WriteDeadLetter
from windfall.daemon.dead_letters import DeadLetters, file_name
from windfall.schedules.schedule import Schedule, Target

QUEUE = "arn:aws:sqs:us-east-1:123456789012:failed-ticks"
TARGET = Target("arn:aws:scheduler:::aws-sdk:batch:submitJob", "role", '{"JobName": "n"}', dead_letter=QUEUE)
LETTER = WriteDeadLetter(
    Schedule("default", "nightly", "rate(1 day)", TARGET), 1_794_794_400_000, 3, "ClientException: no queue"
)


class Heard:
    """Notes what the core is told."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[Any] = asyncio.Queue()

    async def execute(self, command: Any, tenant: str | None = None) -> None:
        await self.commands.put(command)


def written(directory: Path, webhook: str | None = None) -> Any:
    """Have a letter written, and answer what the core was told."""

    async def write() -> Any:
        heard = Heard()
        letters = DeadLetters(heard, directory, webhook, lambda key: f"arn:{key}")  # type: ignore[arg-type]  # a fake
        letters.carry_out(LETTER)
        try:
            return await asyncio.wait_for(heard.commands.get(), 120)
        finally:
            letters.let_go()

    return asyncio.run(write())


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "failed-ticks.jsonl").read_text().splitlines()]


def test_a_letter_is_a_line_of_the_file_that_its_queue_names(tmp_path):
    directory = tmp_path / "letters"
    assert written(directory) == DeadLetterWritten("default/nightly", 1_794_794_400_000)
    written(directory)
    first, second = lines(directory)
    assert first == second
    assert first == {
        "scheduleArn": "arn:default/nightly",
        "scheduledTime": "2026-11-16T02:00:00Z",
        "targetArn": TARGET.arn,
        "input": '{"JobName": "n"}',
        "attributes": {
            "ERROR_CODE": "ClientException",
            "ERROR_MESSAGE": "no queue",
            "RETRY_ATTEMPTS": 2,
            "TARGET_ARN": TARGET.arn,
        },
    }
    assert (directory / "failed-ticks.jsonl").stat().st_mode & 0o077 == 0


@pytest.fixture
def receiver():
    """A webhook that answers with the status it was told to, and keeps what it got."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        status = 200

        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(Handler.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/letters", got, Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_the_letter_instead_of_the_file(tmp_path, receiver):
    url, got, _ = receiver
    written(tmp_path, url)
    assert [letter["scheduleArn"] for letter in got] == ["arn:default/nightly"]
    assert not (tmp_path / "failed-ticks.jsonl").exists()


def test_what_a_webhook_does_not_take_goes_to_the_file(tmp_path, receiver):
    url, _, handler = receiver
    handler.status = 500
    written(tmp_path, url)
    assert len(lines(tmp_path)) == 1


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        (QUEUE, "failed-ticks"),
        ("arn:aws:sqs:us-east-1:123456789012:../../etc/passwd", "_.._etc_passwd"),
        ("", "dead-letters"),
        ("..", "dead-letters"),
        ("a" * 500, "a" * 120),
    ],
)
def test_no_name_of_a_queue_leaves_the_directory(arn, name):
    assert file_name(arn) == name
