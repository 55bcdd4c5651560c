"""Where events begin and end, from whichever side they are read."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.attempt_files import RecordedLog
from windfall.aws_api.logs.lines import LINE_LIMIT_BYTES, LogLines


@pytest.fixture
def lines_of(tmp_path):
    def make(content: bytes, *, final: bool = True, **options) -> LogLines:
        (tmp_path / "log").write_bytes(content)
        return LogLines(RecordedLog(str(tmp_path / "log")).read, len(content), final=final, **options)

    return make


def contents(lines: LogLines) -> list[bytes]:
    return [piece.content for piece in lines.forward(0) if piece.content]


def test_lines_are_events_and_blank_ones_are_not(lines_of):
    assert contents(lines_of(b"first\n\n\r\nsecond\r\n  \nlast")) == [b"first", b"second", b"  ", b"last"]


def test_an_unterminated_rest_is_a_line_only_when_final(lines_of):
    assert contents(lines_of(b"one\ntwo", final=False)) == [b"one"]
    assert contents(lines_of(b"one\ntwo\n", final=False)) == [b"one", b"two"]


def test_an_absent_log_has_no_lines(tmp_path):
    lines = LogLines(RecordedLog(str(tmp_path / "gone")).read, 100, final=True)
    assert list(lines.forward(0)) == list(lines.backward(100)) == []


@pytest.mark.parametrize("extra", [-1, 0, 1, 3, 4, LINE_LIMIT_BYTES, 3 * LINE_LIMIT_BYTES + 1])
@pytest.mark.parametrize("before", [b"", b"x\n", b"y" * (LINE_LIMIT_BYTES - 3) + b"\n"])
@pytest.mark.parametrize("after", [b"", b"\n", b"\nlast\n"])
def test_a_long_line_is_cut_and_nothing_of_it_is_lost(lines_of, before, extra, after):
    line = b"".join(b"%07d " % n for n in range((LINE_LIMIT_BYTES + extra) // 8 + 1))[
        : LINE_LIMIT_BYTES + extra
    ]
    lines = lines_of(before + line + after)
    pieces = list(lines.forward(0))
    assert all(len(piece.content) <= LINE_LIMIT_BYTES for piece in pieces)
    own = [piece for piece in pieces if piece.start >= len(before) and piece.content != b"last"]
    assert b"".join(piece.content for piece in own) == line
    assert (len(own) > 1) == (extra > 0)
    assert list(lines.backward(lines.end)) == pieces[::-1]


def test_characters_are_not_torn_where_a_long_line_is_cut(lines_of):
    text = "x" + "€" * LINE_LIMIT_BYTES
    pieces = list(lines_of(text.encode() + b"\n").forward(0))
    assert len(pieces) > 2
    assert "".join(piece.content.decode() for piece in pieces) == text


ALPHABET = st.sampled_from([b"a", b"b", b"\n", b"\r", b"\xe2\x82\xac", b"\x82", b"aaaaaaa"])


@given(st.lists(ALPHABET, max_size=80), st.booleans(), st.integers(1, 40), st.data())
def test_every_reader_finds_the_same_events(tmp_path_factory, atoms, final, chunk_bytes, data):
    content = b"".join(atoms)
    path = tmp_path_factory.getbasetemp() / "same-events.log"
    path.write_bytes(content)
    lines = LogLines(
        RecordedLog(str(path)).read, len(content), final=final, chunk_bytes=chunk_bytes, line_limit_bytes=8
    )
    pieces = list(lines.forward(0))
    ends = [0, *(piece.end for piece in pieces)]
    # One behind the other without gaps, and in the end everything is there.
    assert [piece.start for piece in pieces] == ends[:-1]
    if final:
        assert ends[-1] == len(content)
        shown = b"".join(piece.content for piece in pieces).replace(b"\r", b"")
        assert shown == content.replace(b"\n", b"").replace(b"\r", b"")
    # From any place where one begins, forwards and backwards.
    place = data.draw(st.sampled_from(ends))
    assert list(lines.forward(place)) == [piece for piece in pieces if piece.start >= place]
    assert list(lines.backward(place)) == [piece for piece in pieces if piece.start < place][::-1]
    # From any offset.
    offset = data.draw(st.integers(0, len(content)))
    assert lines.boundary(offset) in ends
    expected = next((piece.start for piece in pieces if piece.end > offset), ends[-1])
    assert lines.first_beyond(offset) == expected


@given(st.lists(ALPHABET, max_size=60), st.integers(1, 20))
def test_what_was_shown_while_it_grew_is_what_is_there_at_the_end(tmp_path_factory, atoms, chunk_bytes):
    content = b"".join(atoms)
    path = tmp_path_factory.getbasetemp() / "growing.log"
    path.write_bytes(content)
    seen, place = [], 0
    for end in itertools.accumulate(len(atom) for atom in atoms):
        lines = LogLines(
            RecordedLog(str(path)).read, end, final=False, chunk_bytes=chunk_bytes, line_limit_bytes=8
        )
        seen += list(lines.forward(place))
        place = seen[-1].end if seen else 0
        assert lines.first_beyond(end) == place
    whole = LogLines(
        RecordedLog(str(path)).read, len(content), final=True, chunk_bytes=chunk_bytes, line_limit_bytes=8
    )
    assert seen + list(whole.forward(place)) == list(whole.forward(0))
