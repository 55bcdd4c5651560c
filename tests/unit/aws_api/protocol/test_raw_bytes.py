"""Whatever bytes come over a connection: no answer is a fault of ours, none is told in the log, no connection stays."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import socket

import pytest

from tests.unit.aws_api.protocol.live_server import Live, live_server
from tests.unit.aws_api.protocol.test_malformed_requests import JOB, exchange, signed_request
from windfall.daemon.http_connection import HEAD_LIMIT_BYTES, HttpConnection

SEED = 20_261_115
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: h\r\n"
BEGINNINGS = [
    HEALTH,
    b"POST /v1/submitjob HTTP/1.0\r\n",
    b"GET http://host HTTP/1.1\r\n",
    b"GET /\xff?\xfe HTTP/1.1\r\n",
    b"GET /%zz%00 HTTP/1.1\r\n",
    b"GET /v1/%E2%82 HTTP/9.9\r\n",
    b"GET /\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"CONNECT host:80 HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-client\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"\r\n" * 20,
]
HEADERS = [
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n",
    b"Expect: 100-continue\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: -5\r\n",
    b"Content-Length: 99999999999999999999999\r\n",
    b"Content-Type: application/cbor\r\nsmithy-protocol: rpc-v2-cbor\r\n",
    b"Content-Type: application/x-www-form-urlencoded\r\n",
    b"Authorization: AWS4-HMAC-SHA256 Credential=\xff/2/3/4/5, SignedHeaders=, Signature=\r\n",
    b" folded\r\n",
    b"\0: x\r\n",
    b"X-Long: " + b"a" * 70_000 + b"\r\n",
]
ENDS = [b"\r\n", b"\n", b"", b"\r\n\r\n\r\n"]
BODIES = [
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"fffffffffffffffff\r\nx",
    b"zz\r\n",
    b"5\r\nhel",
    b"0\r\nTrailer: x\r\n\r\n",
    (HEALTH + b"\r\n") * 3,
    b"\0" * 100,
]


class Impatient(HttpConnection):
    #: Long enough for a request that a busy machine is slow to send.
    head_timeout_s = 2.0


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    with live_server(folder, body_timeout_s=0.3, idle_s=1, connection=Impatient) as live:
        yield live


def some_bytes(random_: random.Random, live: Live) -> bytes:
    kind = random_.randrange(4)
    if kind == 0:
        return random_.randbytes(random_.randrange(1, 400))
    if kind == 1:
        content = bytearray(signed_request(live, JOB, extra=random_.choice(HEADERS)))
        for _ in range(random_.randint(1, 5)):
            position = random_.randrange(len(content))
            content[position : position + random_.randrange(3)] = random_.randbytes(random_.randrange(3))
        return bytes(content[: random_.randrange(1, len(content) + 1)])
    headers = b"".join(random_.choices(HEADERS, k=random_.randrange(4)))
    request = random_.choice(BEGINNINGS) + headers + random_.choice(ENDS) + random_.choice(BODIES)
    return request * (kind - 1)


def send(live: Live, content: bytes, *, half_closed: bool = False) -> socket.socket:
    """A connection over which these bytes were sent, as far as the server took them."""
    connection = socket.create_connection(("127.0.0.1", live.port), timeout=60)
    try:
        connection.sendall(content)
        if half_closed:
            connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server had heard enough
    return connection


def all_until_closed(connection: socket.socket) -> bytes:
    """What the server says until it closes; a TimeoutError if it never does."""
    pieces = []
    with connection:
        try:
            while piece := connection.recv(65536):
                pieces.append(piece)
        except ConnectionResetError:
            pass  # it closed with bytes of ours unread
    return b"".join(pieces)


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = caplog.records
    return [record.getMessage() for record in records if record.exc_info or record.levelno >= logging.ERROR]


def test_no_bytes_break_anything_or_hold_a_connection(live: Live, caplog: pytest.LogCaptureFixture):
    random_ = random.Random(SEED)
    sent = [some_bytes(random_, live) for _ in range(200)]
    connections = [send(live, content, half_closed=number % 3 == 0) for number, content in enumerate(sent)]
    answers = [all_until_closed(connection) for connection in connections]
    for number, answer in enumerate(answers):
        statuses = re.findall(rb"HTTP/1\.1 (\d)", answer)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), (SEED, number, sent[number], answer)
        assert b"5" not in statuses, (SEED, number, sent[number], answer)
    assert sum(answer.startswith(b"HTTP/1.1 400") for answer in answers) > 100
    assert faults(caplog) == []
    assert exchange(live, HEALTH + b"\r\n")[0] == 200


def test_a_client_that_stops_in_the_middle_is_let_go(live: Live):
    stopped = [send(live, content) for content in (b"", b"\r\n", b"GET / HT", HEALTH)]
    # What comes after an answer, when the server does not watch for idleness any more.
    answered = [send(live, HEALTH + b"\r\n") for _ in range(2)]
    for connection, more in zip(answered, (HEALTH, b"\r\n\r\n"), strict=True):
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(OSError):  # on a busy machine it may have been let go already
            connection.sendall(more)
    assert [all_until_closed(connection) for connection in (*stopped, *answered)] == [b""] * 6


def test_a_head_without_end_is_refused_before_it_fills_the_memory(live: Live):
    endless = HEALTH + b"X: y\r\n" * 1_000_000
    connection = send(live, endless)
    answer = all_until_closed(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    # One byte above the limit, so that all of it is read and the answer arrives.
    refused = all_until_closed(send(live, (HEALTH + b"X: ").ljust(HEAD_LIMIT_BYTES + 1, b"y")))
    assert refused.endswith(b"The request line and headers may have at most 65536 bytes.")


def test_a_large_head_is_refused_however_it_arrives(live: Live, caplog: pytest.LogCaptureFixture):
    large = HEALTH + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 990) for n in range(100)) + b"\r\n"
    for before in (b"", (HEALTH + b"\r\n") * 3):
        refused = all_until_closed(send(live, before + large))
        assert refused.endswith(b"The request line and headers may have at most 65536 bytes.")
    assert faults(caplog) == []


def test_many_requests_at_once_are_all_answered(live: Live, caplog: pytest.LogCaptureFixture):
    many, small = 3_000, HEALTH + b"X-Some: " + b"y" * 40 + b"\r\n\r\n"
    assert len(small) * many > 3 * HEAD_LIMIT_BYTES
    last = HEALTH + b"Connection: close\r\n\r\n"
    answer = all_until_closed(send(live, small * many + last))
    assert answer.count(b"HTTP/1.1 200") == many + 1
    assert b"HTTP/1.1 400" not in answer
    assert faults(caplog) == []


def test_a_large_body_is_no_large_head(live: Live):
    status, _ = exchange(live, signed_request(live, JOB + b" " * 900_000))
    assert status == 200
