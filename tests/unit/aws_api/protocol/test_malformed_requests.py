"""Hundreds of malformed requests over raw sockets: each is answered with a 4xx, and the server lives."""

from __future__ import annotations

import random
import socket
import time
from http.client import HTTPResponse

import pytest

from tests.unit.aws_api.protocol.live_server import Live, live_server
from windfall.aws_api.protocol.sigv4 import sign

SEED = 20_240_229
JOB = b'{"jobName":"train","jobQueue":"q","jobDefinition":"d:1"}'


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with live_server(tmp_path_factory.mktemp("fuzz"), body_timeout_s=0.2) as live:
        yield live


def exchange(live: Live, content: bytes) -> tuple[int, bytes]:
    """Send bytes and return status and body of the first answer."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=120) as connection:
        connection.sendall(content)
        response = HTTPResponse(connection, method="HEAD" if content.startswith(b"HEAD ") else "GET")
        response.begin()
        return response.status, response.read()


def signed_request(
    live: Live,
    body: bytes,
    *,
    method: str = "POST",
    path: str = "/v1/submitjob",
    service: str = "batch",
    target: str | None = None,
    extra: bytes = b"",
    length: int | None = None,
) -> bytes:
    """Return the bytes of a request whose signature is valid, whatever else is wrong with it."""
    headers = sign(
        method=method,
        url=live.url + path,
        headers={} if target is None else {"X-Amz-Target": target},
        body=body,
        access_key_id=live.admin.access_key_id,
        secret_access_key=live.admin.secret_access_key,
        region="us-east-1",
        service=service,
        now=time.time(),
    )
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
    length = len(body) if length is None else length
    return (
        f"{method} {path} HTTP/1.1\r\n".encode()
        + lines
        + extra
        + f"Content-Length: {length}\r\n\r\n".encode()
        + body
    )


def random_json(random_: random.Random, depth: int = 0) -> bytes:
    choice = random_.randrange(9 if depth < 6 else 6)
    if choice == 0:
        return random_.choice(
            [b"1e308", b"-1e999", b"99999999999999999999", b"0.1", b"-0", b"2147483648", b"7"]
        )
    if choice == 1:
        return random_.choice([b"true", b"false", b"null", b"nul", b"NaN"])
    if choice in (2, 3, 4):
        return random_.choice(
            [b'""', b'"a"', b'"\\u0000"', b'"\\ud83d"', b'"\xff"', b'"\xc3\xa9"', b'"' + b"x" * 5000 + b'"']
        )
    if choice == 5:
        return bytes(random_.randrange(256) for _ in range(random_.randrange(6)))
    if choice == 6:
        return b"[" + b",".join(random_json(random_, depth + 1) for _ in range(random_.randrange(4))) + b"]"
    names = [
        b"jobName",
        b"jobQueue",
        b"tags",
        b"dependsOn",
        b"arrayProperties",
        b"size",
        b"containerOverrides",
        b"x",
    ]
    pairs = [
        b'"' + random_.choice(names) + b'":' + random_json(random_, depth + 1)
        for _ in range(random_.randrange(5))
    ]
    return b"{" + b",".join(pairs) + b"}"


def test_signed_nonsense_bodies(live: Live):
    random_ = random.Random(SEED)
    for number in range(250):
        body = random_json(random_)
        if number % 2:
            content = signed_request(live, body)
        else:
            content = signed_request(
                live, body, path="/", service="logs", target="Logs_20140328.GetLogEvents"
            )
        status, answer = exchange(live, content)
        assert 400 <= status < 500, (SEED, number, body, answer)
        assert b'"__type"' in answer


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 500_000,
        b'{"tags":' * 100_000,
        b'{"jobName":"' + b"a" * 900_000,
        b"\0" * 1000,
        b'{"jobName":' + b"9" * 900_000 + b"}",
        b'{"jobName":"a\\u0000b","jobQueue":"q","jobDefinition":"d"}',
        b" " * 1_100_000 + JOB,
    ],
    ids=["lists", "objects", "open string", "nul bytes", "huge number", "nul escape", "too large"],
)
def test_extreme_bodies(live: Live, body):
    status, answer = exchange(live, signed_request(live, body))
    assert 400 <= status < 500
    assert b'"__type"' in answer


@pytest.mark.parametrize(
    "path", ["/v1/tags/%", "/v1/tags/%zz", "/v1/tags/%ff%fe", "/v1/tags/a%00b", "/v1/tags/"]
)
def test_bad_paths(live: Live, path):
    status, answer = exchange(live, signed_request(live, b"", method="GET", path=path))
    assert 400 <= status < 500
    assert b'"__type"' in answer


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW"]
)
def test_other_methods(live: Live, method):
    status, _ = exchange(live, signed_request(live, JOB, method=method))
    assert 400 <= status < 500


@pytest.mark.parametrize(
    "extra",
    [
        b"Authorization: AWS4-HMAC-SHA256 Credential=a\r\n",
        b"X-Amz-Date: 20240101T000000Z\r\n",
        b"Host: elsewhere\r\n",
        b"X-Amz-Target: Logs_20140328.GetLogEvents\r\n",
        b"X-Amz-Security-Token: \xff\xfe\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Bad Header\r\n",
        b"X-Nul: a\0b\r\n",
    ],
)
def test_doubled_and_broken_headers(live: Live, extra):
    status, _ = exchange(live, signed_request(live, JOB, extra=extra))
    assert 400 <= status < 500


@pytest.mark.parametrize("length", [0, 10, len(JOB) + 10, 2_000_000, 10**30])
def test_a_content_length_that_lies(live: Live, length):
    status, _ = exchange(live, signed_request(live, JOB, length=length))
    assert 400 <= status < 500


def test_a_mutated_request_never_gets_through_and_never_breaks_anything(live: Live):
    """Change, drop or insert bytes in the head of a good request; unsigned bytes may well be harmless."""
    random_ = random.Random(SEED)
    refused = 0
    for number in range(300):
        content = bytearray(signed_request(live, JOB))
        head = content.index(b"\r\n\r\n")
        for _ in range(random_.randint(1, 4)):
            position = random_.randrange(head)
            action = random_.randrange(3)
            if action == 0:
                content[position] = random_.randrange(256)
            elif action == 1:
                del content[position]
            else:
                content.insert(position, random_.randrange(256))
        # Whatever the damage did to the request's framing, the second request brings the parser to a verdict.
        status, answer = exchange(live, bytes(content) + b"\r\n\r\n\0\0\r\n\r\n")
        assert status == 200 or 400 <= status < 500, (SEED, number, bytes(content), answer)
        refused += status != 200
    assert refused > 200


def test_the_server_lives(live: Live):
    assert exchange(live, b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n") == (200, b'{"status":"ok"}')
    status, answer = exchange(live, signed_request(live, JOB))
    assert status == 200, answer
