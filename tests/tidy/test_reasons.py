"""An exception has its reason beside it: rules that are off, silenced findings, dependencies."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.tidy.tree import ROOT, Violation, files_under, report, shown

SILENCED = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]*[0-9]|type: ignore\[[\w, -]+\])(?P<reason>.*)", re.DOTALL)
A_REASON = re.compile(r"\w+\W+\w+")


def silenced_without_reason(code: str, where: str) -> Iterator[Violation]:
    """Comments that silence a tool and do not say why, on their line or in a comment right above."""
    lines = code.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT or not (match := SILENCED.match(token.string)):
            continue
        number = token.start[0]
        above = lines[number - 2].strip() if number > 1 else ""
        if not A_REASON.search(match["reason"]) and not above.startswith("#"):
            yield Violation(
                f"{where}:{number}",
                f"{token.string!r} gives no reason",
                "Write `# noqa: RULE (why it is right here)`, or a comment above",
            )


def entries_without_reason(toml: str, opening: str) -> Iterator[Violation]:
    """Entries of a list in pyproject.toml that have no comment, on their line or right above."""
    block = toml.split(f"\n{opening}\n", 1)[1].split("\n]", 1)[0]
    above = ""
    for line in block.splitlines():
        if (
            line.strip().startswith('"')
            and not re.search(r'",?\s*#\s*\w', line)
            and not above.startswith("#")
        ):
            yield Violation("pyproject.toml", f"{line.strip()} gives no reason", "Write it beside or above")
        above = line.strip()


def test_silenced_findings_have_reasons():
    found: list[Violation] = []
    for folder in ("src", "tests", "bench", "examples"):
        for file in files_under(ROOT / folder, ".py"):
            found += silenced_without_reason(file.read_text(encoding="utf-8"), shown(file))
    assert not found, report(found)


@pytest.mark.parametrize("opening", ["ignore = [", "dependencies = ["])
def test_entries_of_pyproject_have_reasons(opening):
    found = list(entries_without_reason((ROOT / "pyproject.toml").read_text(encoding="utf-8"), opening))
    assert not found, report(found)


@pytest.mark.parametrize("comment", ["# noqa: S608", "# type: ignore[arg-type]", "# noqa: S603, S607"])
def test_a_silence_without_reason_is_found(comment):
    (violation,) = silenced_without_reason(f"x = 1  {comment}\n", "m.py")
    assert "why it is right here" in violation.instead
    assert list(silenced_without_reason(f"x = 1  {comment} (the table's name is ours)\n", "m.py")) == []
    assert list(silenced_without_reason(f"# The table's name is ours.\nx = 1  {comment}\n", "m.py")) == []


def test_an_entry_without_reason_is_found():
    toml = '\nignore = [\n  "A1", # because of this\n  # and this\n  "A2",\n  "A3",\n]\n'
    (violation,) = entries_without_reason(toml, "ignore = [")
    assert '"A3"' in violation.what
