"""Answers of a container engine, cut anywhere; engines that are none, hang, or hang up."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineRefused, EngineTimeout, EngineUnreachable
from windfall.agent.container.exchange import Body, Exchange
from windfall.agent.container.following import Frames


def in_pieces(content: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    yield from (content[start:end] for start, end in itertools.pairwise(edges))


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.lists(st.integers(0, 1000), max_size=12))
def test_chunks_are_put_together_wherever_the_stream_is_cut(parts: list[bytes], cuts: list[int]):
    raw = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    body = Body({"transfer-encoding": "chunked"})
    found = b"".join(body.feed(piece) for piece in in_pieces(raw, cuts) if not body.ended)
    assert (found, body.ended) == (b"".join(parts), True)


@given(
    st.lists(st.binary(max_size=50), max_size=8),
    st.lists(st.integers(0, 1000), max_size=12),
    st.integers(0, 300),
)
def test_frames_give_their_content_and_what_the_log_has_is_passed_over(
    parts: list[bytes], cuts: list[int], passed_over: int
):
    raw = b"".join(
        bytes([1 + number % 2, 0, 0, 0]) + len(part).to_bytes(4, "big") + part
        for number, part in enumerate(parts)
    )
    frames = Frames(passed_over)
    assert b"".join(frames.feed(piece) for piece in in_pieces(raw, cuts)) == b"".join(parts)[passed_over:]


def test_a_body_of_known_length_ends_there_and_one_of_unknown_with_the_line():
    known = Body({"content-length": "3"})
    assert (known.feed(b"ab"), known.ended) == (b"ab", False)
    assert not known.close()
    assert (known.feed(b"cd"), known.ended) == (b"c", True)
    unknown = Body({})
    assert (unknown.feed(b"ab"), unknown.ended) == (b"ab", False)
    assert unknown.close()
    assert Body({"content-length": "0"}).ended


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """An engine that says one thing to each who asks and hangs up; None says nothing and stays."""
    open_sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(*contents: bytes | None) -> str:
        path = str(tmp_path / "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        open_sockets.append(listener)

        def answer() -> None:
            for content in contents:
                line, _ = listener.accept()
                open_sockets.append(line)
                line.recv(65536)
                if content is not None:
                    line.sendall(content)
                    line.close()

        threads.append(threading.Thread(target=answer))
        threads[-1].start()
        return path

    yield serve
    for thread in threads:
        thread.join(120)
    for one in open_sockets:
        one.close()


def test_a_refusal_is_told_in_the_engines_words(answering: Callable[[bytes | None], str]):
    path = answering(b'HTTP/1.1 404 Not Found\r\nContent-Length: 21\r\n\r\n{"message":"no such"}')
    with pytest.raises(EngineRefused, match="Error response from daemon: no such") as caught:
        Exchange(path, "GET", "/x").value()
    assert caught.value.status == 404


def test_a_refusal_without_words_has_its_number(answering: Callable[[bytes | None], str]):
    path = answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(EngineRefused, match="status 500"):
        Exchange(path, "GET", "/x").value()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SSH-2.0-nobody\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<htm>",
    ],
)
def test_what_is_no_engine_or_breaks_off_is_unreachable(
    answering: Callable[[bytes | None], str], content: bytes
):
    path = answering(content)
    with pytest.raises(EngineUnreachable):
        Exchange(path, "GET", "/x").value()


def test_a_socket_where_nobody_listens_is_unreachable(tmp_path: Path):
    with pytest.raises(EngineUnreachable, match="no container engine answers at"):
        Exchange(str(tmp_path / "none"), "GET", "/x")


def test_an_engine_that_hangs_is_given_up(answering: Callable[[bytes | None], str]):
    path = answering(None)
    with pytest.raises(EngineTimeout, match=r"GET /x: no answer .* within 0.1 s"):
        Exchange(path, "GET", "/x?secret", timeout_s=0.1)


def said(status: int, body: str) -> bytes:
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "words", ["c1 does not exist in database: no such container", "getting c1: container not known"]
)
def test_a_container_that_goes_while_it_is_asked_about_is_gone(answering: Callable[..., str], words: str):
    refusal = said(500, f'{{"message":"{words}"}}')
    engine = Engine(answering(refusal, refusal, said(500, '{"message":"disk full"}')))
    assert engine.inspect("c1") is None
    engine.remove("c1")
    with pytest.raises(EngineRefused, match="disk full"):
        engine.remove("c1")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nxx\r\n",
        b"HTTP/1.1 2\xb2 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nno JSON",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"\x00\x00\x00\x00\r\n\r\n",
    ],
)
def test_whatever_else_answers_is_told_as_no_engine(answering: Callable[..., str], head: bytes):
    path = answering(head)
    with pytest.raises(EngineUnreachable):
        Exchange(path, "GET", "/x").value()


@pytest.mark.parametrize("content", [b"[1, 2]", b'"x"', b"{}", b"null", b'{"Id": 0}'])
def test_answers_of_another_kind_are_taken_as_empty(answering: Callable[..., str], content: bytes):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)
    engine = Engine(answering(*[answer] * 4))
    assert engine.networks() == []
    assert engine.containers("label") == []
    assert isinstance(engine.version(), dict)
    with pytest.raises(EngineUnreachable, match="without returning its id"):
        engine.create("name", {})
