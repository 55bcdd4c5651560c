"""Messages survive the wire, whole or in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.errors import ProtocolError
from windfall.agent.line_reader import LineReader
from windfall.agent.messages import (
    PROTOCOL,
    Exited,
    Forget,
    Hello,
    Lost,
    Start,
    Stop,
    decode_for_agent,
    decode_for_daemon,
    encode,
    misfit,
)

RECORDED = Path(__file__).parent / "recorded_messages"
START = Start("t", "task", ["sh", "-c", "echo\nhi"], {"A": "ü\n"}, None, "/log", 0.5, 128, ["GPU-1"])


def test_both_directions_round_trip():
    asked = [Hello(3), START, Stop("t", 2.5), Forget(["t", "u"])]
    assert list(decode_for_agent(encode(asked))) == asked
    told = [Exited("t", None, None, 1, 2, "process"), Lost("t", 3)]
    assert list(decode_for_daemon(encode(told))) == told


def has_all_of(whole: Any, part: Any) -> bool:
    """Whether a value has everything that an earlier version said, whatever was added since."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and has_all_of(whole[name], value) for name, value in part.items()
        )
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(has_all_of, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("name", ["to_agent", "to_daemon"])
@pytest.mark.parametrize("release", sorted(RECORDED.iterdir()), ids=lambda path: path.name)
def test_all_that_an_earlier_release_says_is_understood_and_all_that_it_needs_is_said(
    release: Path, name: str
):
    """Every message of a release with every field set, as that release wrote it; it must stay readable for ever."""
    lines = (release / f"{name}.jsonl").read_bytes()
    heard = list((decode_for_agent if name == "to_agent" else decode_for_daemon)(lines))
    for line, said in zip(lines.splitlines(), encode(heard).splitlines(), strict=True):
        assert has_all_of(json.loads(said), json.loads(line)), said


@pytest.mark.parametrize(
    ("protocol", "oldest", "understood"),
    [(0, 0, True), (PROTOCOL, 0, True), (PROTOCOL + 3, PROTOCOL, True), (PROTOCOL + 3, PROTOCOL + 1, False)],
)
def test_versions_that_overlap_understand_each_other(protocol: int, oldest: int, understood: bool):
    trouble = misfit(Hello(1, protocol, oldest), "the daemon", "the agent")
    assert (trouble is None) is understood
    if trouble is not None:
        assert trouble.startswith(
            f"the daemon speaks protocol {oldest} to {protocol}, and the agent 0 to {PROTOCOL};"
        )


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
