"""Messages survive the wire, whole or in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.errors import ProtocolError
from windfall.agent.messages import (
    Exited,
    Forget,
    Hello,
    LineReader,
    Lost,
    Start,
    Stop,
    decode_for_agent,
    decode_for_daemon,
    encode,
)

START = Start("t", "task", ["sh", "-c", "echo\nhi"], {"A": "ü\n"}, None, "/log", 0.5, 128, ["GPU-1"])


def test_both_directions_round_trip():
    asked = [Hello(3), START, Stop("t", 2.5), Forget(["t", "u"])]
    assert list(decode_for_agent(encode(asked))) == asked
    told = [Exited("t", None, None, 1, 2, "process"), Lost("t", 3)]
    assert list(decode_for_daemon(encode(told))) == told


@given(cuts=st.lists(st.integers(min_value=1, max_value=60), max_size=20))
def test_pieces_of_any_size_give_the_same_messages(cuts: list[int]):
    wire = encode([Hello(1), START, Stop("t", 1.0)])
    reader = LineReader()
    heard = []
    for size in [*cuts, len(wire)]:
        piece, wire = wire[:size], wire[size:]
        heard.extend(decode_for_agent(reader.feed(piece)))
    assert heard == [Hello(1), START, Stop("t", 1.0)]


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n",
        b'{"type":"Explode"}\n',
        b'{"type":"Hello"}\n',
        b"[]\n",
        b'{"type":"Forget","tokens":["\xff"]}\n',
        b'{"type":"Lost","token":"\xff","at":1}\n',
    ],
)
def test_what_is_no_message_is_said_to_be_none(line: bytes):
    for decode in (decode_for_agent, decode_for_daemon):
        with pytest.raises(ProtocolError, match="not a message of this version"):
            decode(line)
