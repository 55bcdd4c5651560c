"""What strangers and careless clients may send to the usher: it refuses, forgets them, and serves the others."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.usher_process import RunningUsher, a_variant, running_usher
from tests.waiting import wait_until

Sent = Callable[[RunningUsher], bytes]


@pytest.fixture(scope="module")
def usher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUsher]:
    with running_usher(tmp_path_factory.mktemp("usher")) as running:
        running.route(a_variant(running.model("m1")))
        yield running


def read_all(connection: socket.socket) -> bytes:
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except ConnectionResetError:
        pass
    return content


def answers(content: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", content)]


def is_well(usher: RunningUsher) -> bool:
    return usher.client().invoke_endpoint(EndpointName="echo", Body=b"x")["Body"].read() == b"m1:x"


def unsigned(usher: RunningUsher) -> bytes:
    return b"POST /endpoints/echo/invocations HTTP/1.1\r\nhost: a\r\ncontent-length: 6291456\r\n\r\n"


def changed_body(usher: RunningUsher) -> bytes:
    return usher.signed(b"abc").replace(b"\r\n\r\nabc", b"\r\n\r\nabd")


def another_path(usher: RunningUsher) -> bytes:
    return usher.signed(b"abc").replace(b"/endpoints/echo/", b"/endpoints/other/")


def unknown_key(usher: RunningUsher) -> bytes:
    return re.sub(rb"Credential=[^/]+/", b"Credential=WNDFNOBODY/", usher.signed(b"abc"))


def added_header(usher: RunningUsher) -> bytes:
    return usher.signed(b"abc", more="x-amz-target: a\r\n")


def foreign_page(usher: RunningUsher) -> bytes:
    return usher.signed(b"abc", more="origin: http://evil.example\r\n")


def too_large(usher: RunningUsher) -> bytes:
    return usher.signed(b"").replace(b"content-length: 0", b"content-length: 6291457")


def absurd_length(usher: RunningUsher) -> bytes:
    return usher.signed(b"").replace(b"content-length: 0", b"content-length: 99999999999999999999")


def negative_length(usher: RunningUsher) -> bytes:
    return usher.signed(b"").replace(b"content-length: 0", b"content-length: -1")


def endless_chunks(usher: RunningUsher) -> bytes:
    head = usher.signed(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    return head + (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 100


def two_lengths(usher: RunningUsher) -> bytes:
    return usher.signed(b"abc", more="transfer-encoding: chunked\r\n")


def not_http(usher: RunningUsher) -> bytes:
    return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20


def long_line(usher: RunningUsher) -> bytes:
    return b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n"


def many_headers(usher: RunningUsher) -> bytes:
    return b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % number for number in range(200)) + b"\r\n"


def upgrade(usher: RunningUsher) -> bytes:
    return b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"


def other_path(usher: RunningUsher) -> bytes:
    return usher.signed(b"abc", action="../../etc")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (unsigned, 403),
        (changed_body, 403),
        (another_path, 403),
        (unknown_key, 403),
        (added_header, 400),
        (foreign_page, 403),
        (too_large, 413),
        (absurd_length, 400),
        (negative_length, 400),
        (endless_chunks, 413),
        (two_lengths, 400),
        (not_http, 400),
        (long_line, 400),
        (many_headers, 400),
        (upgrade, 403),
        (other_path, 404),
    ],
)
def test_a_bad_request_is_refused(usher: RunningUsher, sent: Sent, status: int) -> None:
    begun = len(usher.models[0].begun)
    with usher.connected() as connection:
        try:
            connection.sendall(sent(usher))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # It was refused before all was sent.
        content = read_all(connection)
    assert answers(content) == [status]
    assert b"x-amzn-errortype: " in content
    assert b"Traceback" not in content
    assert len(usher.models[0].begun) == begun
    assert is_well(usher)


def test_a_request_in_pieces_and_several_at_once_are_answered_in_order(usher: RunningUsher) -> None:
    with usher.connected() as connection:
        first = usher.signed(b"one")
        for position in range(0, len(first), 50):
            connection.sendall(first[position : position + 50])
        connection.sendall(usher.signed(b"two") + usher.signed(b"status 500") + usher.signed(b"three"))
        connection.shutdown(socket.SHUT_WR)
        content = read_all(connection)
    assert answers(content) == [200, 200, 424, 200]
    assert re.findall(rb"m1:(one|two|three)", content) == [b"one", b"two", b"three"]


def test_a_client_that_has_closed_its_side_gets_its_answer(usher: RunningUsher) -> None:
    with usher.connected() as connection:
        connection.sendall(usher.signed(b"hello"))
        connection.shutdown(socket.SHUT_WR)
        assert b"m1:hello" in read_all(connection)


def test_a_client_that_leaves_in_the_middle_is_forgotten(usher: RunningUsher) -> None:
    connections = usher.stats().connections
    for cut in (10, 300, 700):
        with usher.connected() as connection:
            connection.sendall(usher.signed(b"x" * 500)[:cut])
    wait_until(lambda: usher.stats().connections == connections, "nothing is left of them")
    assert is_well(usher)


def test_an_expected_continue_is_given(usher: RunningUsher) -> None:
    head, _, body = usher.signed(b"hello", more="expect: 100-continue\r\n").partition(b"\r\n\r\n")
    with usher.connected() as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        connection.shutdown(socket.SHUT_WR)
        assert b"m1:hello" in read_all(connection)


def test_those_that_say_nothing_or_little_are_cut_off(usher: RunningUsher) -> None:
    with usher.connected() as silent, usher.connected() as slow:
        slow.sendall(b"POST /endpoints/echo/invocations HTTP/1.1\r\nhost: ")
        assert is_well(usher)
        assert read_all(silent) == b""
        assert read_all(slow) == b""


def test_a_client_that_takes_nothing_does_not_fill_the_memory(usher: RunningUsher) -> None:
    """A model that streams without end is read no faster than its client reads."""
    with usher.connected() as connection:
        connection.sendall(usher.signed(b"stream 1000000000", action="invocations-response-stream"))
        assert connection.recv(10).startswith(b"HTTP/1.1 2")
        before = _memory_kib(usher)
        for _ in range(20):
            assert is_well(usher)
        assert _memory_kib(usher) - before < 64 * 1024


def _memory_kib(usher: RunningUsher) -> int:
    status = Path(f"/proc/{usher.stats().pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])
