"""What stands before the S3 server: every byte comes through, however it is cut, and heads are completed once each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

from windfall.daemon.s3_relay import serve_relay
from windfall.daemon.s3_resigning import CannotComplete


async def passed_on(pieces, complete=lambda head: head):
    """Send pieces through a relay to a server that notes them; what arrived, and what came back."""
    arrived = bytearray()

    async def note(reader, writer):
        while piece := await reader.read(1 << 16):
            arrived.extend(piece)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if b"END" in arrived else b"")
        writer.close()

    behind = await asyncio.start_server(note, "127.0.0.1", 0)
    port = behind.sockets[0].getsockname()[1]
    relay = await serve_relay(["127.0.0.1"], 0, ("127.0.0.1", port), complete)
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.sockets[0].getsockname()[1])
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.readuntil(b"\r\n\r\n")
    await close(writer, relay, behind)
    return bytes(arrived), answer


async def close(writer, *servers):
    """Close everything, and wait until the event loop has seen all of it closed."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    for server in servers:
        server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)


def marked(head):
    return head.removesuffix(b"\r\n\r\n") + b"\r\nseen: yes\r\n\r\n"


def test_requests_on_one_connection_come_through_however_they_are_cut():
    bodies = [b"", b"x" * 3, b"a\r\n\r\nb" * 50_000, b"END"]
    heads = [b"PUT /%d HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (len(body), len(body)) for body in bodies]
    whole = b"".join(head + body for head, body in zip(heads, bodies, strict=True))
    wanted = b"".join(marked(head) + body for head, body in zip(heads, bodies, strict=True))
    chance = random.Random(7)
    for _ in range(5):
        cuts = sorted({0, len(whole), *(chance.randrange(len(whole)) for _ in range(40)), *range(1, 60)})
        pieces = [whole[start:end] for start, end in itertools.pairwise(cuts)]
        assert asyncio.run(passed_on(pieces, marked))[0] == wanted


def test_a_chunked_request_is_the_last_of_its_connection():
    head = b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
    arrived, _ = asyncio.run(passed_on([head, b"3\r\nEND\r\n0\r\n\r\n"]))
    assert b"Connection: close" in arrived
    assert b"keep-alive" not in arrived
    assert arrived.endswith(b"3\r\nEND\r\n0\r\n\r\n")


def test_a_request_that_cannot_be_completed_is_answered_here():
    def refuse(head):
        raise CannotComplete("name a key")

    arrived, answer = asyncio.run(passed_on([b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nEND"], refuse))
    assert arrived == b""
    assert answer.startswith(b"HTTP/1.1 501 ")


def test_an_endless_head_is_refused():
    arrived, answer = asyncio.run(passed_on([b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000]))
    assert arrived == b""
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_without_a_server_behind_it_the_client_is_told_to_come_again():
    async def asked():
        relay = await serve_relay(["127.0.0.1"], 0, ("127.0.0.1", 1), lambda head: head)
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.sockets[0].getsockname()[1])
        answer = await reader.read()
        await close(writer, relay)
        return answer

    assert asyncio.run(asked()).startswith(b"HTTP/1.1 503 ")
