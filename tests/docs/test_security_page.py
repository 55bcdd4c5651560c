"""docs/security.md names the test that shows each of its lines: those tests must exist."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py(?:::\w+)?)`", PAGE)))
ROWS = [
    line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| rule", "| who"))
]


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_the_page_names_exists(name: str):
    path, _, test = name.partition("::")
    file = ROOT / "tests" / path
    assert file.is_file(), f"there is no tests/{path}; name the test that shows the line"
    assert not test or f"def {test}(" in file.read_text(), f"tests/{path} has no {test}"


def test_every_rule_names_a_test():
    rules = [row for row in ROWS if row.count("|") == 3]
    assert len(rules) > 30
    assert [row for row in rules if ".py" not in row] == []
