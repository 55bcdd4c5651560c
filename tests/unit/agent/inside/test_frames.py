"""Frames come out as they went in, however the stream is cut."""

from __future__ import annotations

import pytest

from windfall.agent.inside.frames import (
    ENDED,
    INPUT,
    OUTPUT,
    WINDOW,
    BadFrame,
    FrameReader,
    ended,
    frame,
    read_ended,
    read_window,
    window,
)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_stream_cut_anywhere(size):
    sent = [(INPUT, b""), (OUTPUT, bytes(range(256))), (WINDOW, b"\0\x18\0\x50")]
    stream = b"".join(frame(kind, content) for kind, content in sent)
    reader, found = FrameReader(), []
    for at in range(0, len(stream), size):
        found += reader.feed(stream[at : at + size])
    assert found == sent


def test_what_is_too_large_is_no_frame():
    with pytest.raises(BadFrame):
        list(FrameReader().feed(b"o\xff\xff\xff\xff"))


def test_ends_and_sizes_are_read_back():
    ((kind, content),) = FrameReader().feed(ended(3, "why"))
    assert (kind, read_ended(content)) == (ENDED, (3, "why"))
    ((_, content),) = FrameReader().feed(window(24, 80))
    assert read_window(content) == (24, 80)
    for wrong in (b"", b"{}", b"[]", b"\xff"):
        with pytest.raises(BadFrame):
            read_ended(wrong)
    with pytest.raises(BadFrame):
        read_window(b"\0")
