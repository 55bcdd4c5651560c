"""A daemon that follows: its letters, the gate that all services hold, and requests that are handed on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.unit.daemon.test_loop import World, run
from windfall.aws_api.protocol.errors import AnsweredElsewhereError
from windfall.aws_api.protocol.request import HttpRequest
from windfall.control.events import TerminateJob
from windfall.daemon import forwarding
from windfall.daemon.forwarding import FORWARDED, Forwarding
from windfall.daemon.gateway import Gateway
from windfall.daemon.succession import Following
from windfall.jobs.errors import NotFound
from windfall.jobs.ids import JobId
from windfall.store.errors import CommitFailed

COMMAND = TerminateJob(JobId("j"), "because")


class FakeInbox:
    """Takes letters, after a few failures, and has the reply at once."""

    def __init__(self, reply: object, failures: int = 0) -> None:
        self.reply, self.failures = reply, failures
        self.sent: list[object] = []

    def send(self, letter) -> None:
        if self.failures:
            self.failures -= 1
            raise CommitFailed("no line")
        self.sent.append(letter.command)

    def replies(self, ids):
        return dict.fromkeys(ids, self.reply)


async def answered(following: Following, command=COMMAND):
    asked = asyncio.ensure_future(following.execute(command))
    while not asked.done():
        await following.fetch()
        await asyncio.sleep(0)
    return await asked


def test_a_command_is_sent_until_it_is_there_and_its_reply_is_given():
    async def story():
        inbox = FakeInbox(True, failures=2)
        following = Following(inbox)
        assert await answered(following) is True
        assert inbox.sent == [COMMAND]
        following.close()

    run(story)


def test_a_refusal_of_the_leader_is_raised():
    async def story():
        following = Following(FakeInbox(NotFound("no such job")))
        with pytest.raises(NotFound, match="no such job"):
            await answered(following)
        following.close()

    run(story)


def test_the_gate_goes_from_the_loop_to_the_letters_in_the_middle_of_a_request():
    async def story():
        async with World() as world:
            inbox = FakeInbox("by letter")
            following, gate = Following(inbox), Gateway(world.store)
            gate.lead(world.loop)
            assert await gate.execute(COMMAND) is False
            world.turning.cancel()
            asked = asyncio.ensure_future(gate.execute(COMMAND))
            looked = asyncio.ensure_future(gate.inspect(lambda *_: 1))
            await asyncio.sleep(0)
            gate.follow(following)
            world.loop.abandon()
            with pytest.raises(AnsweredElsewhereError):
                await looked
            while not asked.done():
                await following.fetch()
                await asyncio.sleep(0)
            assert (await asked, inbox.sent) == ("by letter", [COMMAND])
            with pytest.raises(AnsweredElsewhereError):
                await gate.why(JobId("j"))
            gate.close()
            following.close()

    run(story)


class Leader(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.heard.append((self.path, dict(self.headers.items()), body))
        self.send_response(418)
        self.send_header("content-type", "text/tea")
        self.send_header("x-amzn-errortype", "Teapot")
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"tea")

    def log_message(self, *_):
        return


@pytest.fixture
def leader() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Leader) as server:
        server.heard = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def a_request(**headers: str) -> HttpRequest:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return HttpRequest("POST", "/windfall/v1/Why", "a=%20b", given, b"{}")


def test_a_request_is_handed_on_as_it_was_signed(leader):
    url = f"http://127.0.0.1:{leader.server_port}"
    request = a_request(host="follower:1", authorization="AWS4 ...", connection="close", content_length="2")
    response = asyncio.run(Forwarding(lambda: url).forward(request))
    assert (response.status, response.content_type, response.body) == (418, b"text/tea", b"tea")
    assert response.headers == ((b"x-amzn-errortype", b"Teapot"),)
    [(path, headers, body)] = leader.heard
    assert (path, body) == ("/windfall/v1/Why?a=%20b", b"{}")
    assert (headers["host"], headers["authorization"]) == ("follower:1", "AWS4 ...")
    assert headers[FORWARDED.decode()] == "1"


def test_a_leader_is_waited_for_and_a_request_is_not_handed_on_twice(leader, monkeypatch):
    url = f"http://127.0.0.1:{leader.server_port}"
    named = iter([None, "http://127.0.0.1:1", url])
    response = asyncio.run(Forwarding(lambda: next(named)).forward(a_request(host="h")))
    assert response.status == 418
    again = a_request(host="h", x_windfall_forwarded="1")
    assert asyncio.run(Forwarding(lambda: url).forward(again)) is None
    monkeypatch.setattr(forwarding, "PATIENCE_S", 0.05)
    assert asyncio.run(Forwarding(lambda: None).forward(a_request(host="h"))) is None
