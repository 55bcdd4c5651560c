"""The frames of a streamed answer, read back by the parser of the clients themselves."""

from __future__ import annotations

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer, EventStreamMessage
from hypothesis import given
from hypothesis import strategies as st

from windfall.usher.event_stream import PAYLOAD_BYTES_MAX, exception, payload_parts


def read(content: bytes) -> list[EventStreamMessage]:
    buffer = EventStreamBuffer()
    buffer.add_data(content)
    return list(buffer)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5))
def test_parts_come_out_as_they_went_in(parts: list[bytes]) -> None:
    messages = read(b"".join(payload_parts(part) for part in parts))
    assert [message.payload for message in messages] == parts
    assert all(message.headers[":event-type"] == "PayloadPart" for message in messages)
    assert all(message.headers[":message-type"] == "event" for message in messages)


def test_an_empty_part_is_no_frame() -> None:
    assert payload_parts(b"") == b""


def test_a_large_part_is_cut_into_frames() -> None:
    content = bytes(range(256)) * 1000
    messages = read(payload_parts(content))
    assert b"".join(message.payload for message in messages) == content
    assert max(len(message.payload) for message in messages) == PAYLOAD_BYTES_MAX


def test_an_exception_is_one_for_clients() -> None:
    (message,) = read(exception("ModelStreamError", b'{"Message":"it broke"}'))
    assert message.headers[":exception-type"] == "ModelStreamError"
    assert message.to_response_dict()["status_code"] == 400


@pytest.mark.parametrize("position", [9, 20, -1])
def test_a_changed_byte_is_noticed(position: int) -> None:
    content = bytearray(payload_parts(b"abc"))
    content[position] ^= 1
    with pytest.raises(ChecksumMismatch):
        read(bytes(content))
