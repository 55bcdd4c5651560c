"""A prefix as a range holds exactly the texts that begin with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.store.ranges import after_all_with, beginning_with

#: Letters at the edges of what a character can be.
EDGES = st.sampled_from(["\ud7ff", "\ue000", "\uffff", "\U0010ffff", "a", "%", "\x7f", "\x80"])
texts = st.text(st.one_of(EDGES, st.characters(exclude_categories=("Cs",))), max_size=5)


@given(prefix=texts, text=texts)
def test_a_text_is_in_the_range_exactly_when_it_begins_with_the_prefix(prefix, text):
    end = after_all_with(prefix)
    for candidate in (text, prefix + text):
        inside = prefix.encode() <= candidate.encode() and (end is None or candidate.encode() < end.encode())
        assert inside == candidate.startswith(prefix)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("", None), ("a", "b"), ("a%", "a&"), ("\ud7ff", "\ue000"), ("a\U0010ffff", "b"), ("\U0010ffff", None)],
)
def test_the_end_of_a_range(prefix, end):
    assert after_all_with(prefix) == end


def test_the_condition_has_a_parameter_for_each_mark():
    assert beginning_with("name", "x") == ("name >= ? AND name < ?", ["x", "y"])
    assert beginning_with("name", "") == ("name >= ?", [""])
