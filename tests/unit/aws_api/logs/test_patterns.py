"""Filter patterns: what they let through, and which are refused."""

from __future__ import annotations

import pytest

from windfall.aws_api.logs.errors import InvalidParameter
from windfall.aws_api.logs.patterns import parse_pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", ["anything", ""], []),
        ("   ", ["anything"], []),
        ("ERROR", ["an ERROR here", "[ERROR]"], ["error", "fine"]),
        ("ERROR disk", ["disk: ERROR"], ["ERROR", "disk"]),
        ('"out of memory"', ["killed: out of memory"], ["out of the memory"]),
        (r'"say \"hi\""', ['to say "hi"'], ["to say hi"]),
        ("?WARN ?ERROR", ["WARN", "an ERROR"], ["INFO"]),
        ("-DEBUG", ["INFO", ""], ["DEBUG x"]),
        ('loss -"loss=nan"', ["loss=0.1"], ["loss=nan", "step"]),
        ('?"a b" ?c', ["xa b", "c"], ["a  b"]),
        ("?WARN ERROR", ["ERROR"], ["WARN"]),
        ("epoch=3", ["epoch=3"], ["epoch=4"]),
        ("--verbose", ["quiet"], ["run -verbose"]),
    ],
)
def test_patterns(pattern, yes, no):
    parsed = parse_pattern(pattern)
    assert [message for message in yes if not parsed.matches(message)] == []
    assert [message for message in no if parsed.matches(message)] == []


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [('{ $.level = "x" }', "JSON"), ("[ip, user]", "Space-delimited"), (" %a+%", "Regular-expression")],
)
def test_structured_patterns_are_refused_by_name(pattern, kind):
    with pytest.raises(InvalidParameter, match=f"{kind} filter patterns are not supported"):
        parse_pattern(pattern)


@pytest.mark.parametrize("pattern", ['"open', 'a "b', 'a"b"', "?", "a -", '""', '"a"b', '-""'])
def test_malformed_patterns_are_refused(pattern):
    with pytest.raises(InvalidParameter, match="Invalid filter pattern at character"):
        parse_pattern(pattern)
