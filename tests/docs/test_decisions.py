"""Decisions are numbered without gaps and have the parts that decision 0000 asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, Violation, files_under, report, shown

PARTS = ["Context", "Decision", "Alternatives", "Consequences"]


def faults(folder: Path) -> Iterator[Violation]:
    """What departs from docs/decisions/0000-how-decisions-are-written.md."""
    for number, page in enumerate(files_under(folder, ".md")):
        text = page.read_text(encoding="utf-8")
        if not re.fullmatch(rf"{number:04}-[a-z0-9-]+\.md", page.name):
            yield Violation(
                shown(page), f"should be number {number:04}", "Name it NNNN-what-was-decided.md, in order"
            )
        if not text.startswith(f"# {page.name[:4]}. "):
            yield Violation(shown(page), "its title lacks its number", f"Begin with `# {page.name[:4]}. `")
        if re.findall(r"^## (.+)$", text, re.MULTILINE) != PARTS:
            yield Violation(shown(page), "its parts differ", f"Use the headings {', '.join(PARTS)}")
        if not re.search(
            r"^Date: \d{4}-\d{2}-\d{2}\. Status: (accepted|replaced by \d{4})\b", text, re.MULTILINE
        ):
            yield Violation(
                shown(page), "has no date and status", "Write `Date: 2026-01-31. Status: accepted.`"
            )


def test_decisions_keep_their_form():
    found = list(faults(ROOT / "docs" / "decisions"))
    assert not found, report(found)


def test_faults_are_found(tmp_path):
    (tmp_path / "0001-late.md").write_text("# Late\n\n## Context\n")
    advice = report(faults(tmp_path))
    assert "should be number 0000" in advice
    assert "Begin with `# 0001. `" in advice
    assert "Use the headings" in advice
    assert "has no date and status" in advice
