"""What a job says of itself may be anything: it is believed, or it is as if it had said nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.courier.progress import MOST, parse_progress
from windfall.jobs.staging import Progress


def test_what_makes_sense_is_believed():
    assert parse_progress(b'{"at": 5, "step": 3, "loss": 1e40}') == Progress(5, 3, loss=1e40)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"at": "\xff"}',
        b'{"at": 1, "step": 1%s}' % (b"0" * 400),
        b'{"at": 1, "stall_s": 1e999}',
        b'{"at": 1, "loss": NaN}',
    ],
)
def test_nonsense_is_as_good_as_nothing(content: bytes):
    assert parse_progress(content) is None


@given(st.binary(max_size=200))
def test_no_content_raises(content: bytes):
    found = parse_progress(content)
    assert found is None or abs(found.at) <= MOST
