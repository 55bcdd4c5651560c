"""CHANGELOG.md keeps the form of Keep a Changelog, so that people and programs can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import windfall
from tests.tidy.tree import ROOT, Violation, report

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
RELEASE = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})")


def faults(text: str, version: str) -> Iterator[Violation]:
    """What departs from the form, and a version of the package that the file does not know."""
    lines = text.splitlines()
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    if headings[:1] != ["[Unreleased]"]:
        yield Violation(
            "CHANGELOG.md", "does not begin with Unreleased", "Let `## [Unreleased]` be the first heading"
        )
    releases = []
    for heading in headings[1:]:
        match = RELEASE.fullmatch(heading)
        if match is None:
            yield Violation("CHANGELOG.md", f"cannot read {heading!r}", "Write `## [1.2.3] - 2026-01-31`")
        else:
            releases.append(tuple(int(number) for number in match.groups()[:3]))
    if releases != sorted(releases, reverse=True):
        yield Violation("CHANGELOG.md", "releases are out of order", "Put the newest first")
    if releases and tuple(int(number) for number in version.split(".")) < releases[0]:
        yield Violation(
            "CHANGELOG.md",
            f"knows a release after {version}",
            "Raise __version__ in src/windfall/__init__.py",
        )
    yield from _faults_of_sections(lines)


def _faults_of_sections(lines: list[str]) -> Iterator[Violation]:
    for number, line in enumerate(lines, start=1):
        if not line.startswith("### "):
            continue
        where = f"CHANGELOG.md:{number}"
        if line.removeprefix("### ") not in KINDS:
            yield Violation(where, f"{line!r} is no kind of change", f"Use one of {', '.join(KINDS)}")
        following = next((text for text in lines[number:] if text.strip()), "")
        if not following.startswith("- "):
            yield Violation(
                where, f"{line!r} has no entry", "Write `- ` and a sentence for users, or remove it"
            )


def test_the_changelog_keeps_its_form():
    found = list(faults((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), windfall.__version__))
    assert not found, report(found)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("# Changelog\n", "first heading"),
        ("## [0.1.0] - 2026-01-01\n", "first heading"),
        ("## [Unreleased]\n## 0.1.0\n", "Write `## [1.2.3]"),
        ("## [Unreleased]\n## [0.0.1] - 2026-01-01\n## [0.0.2] - 2026-01-02\n", "newest first"),
        ("## [Unreleased]\n## [0.2.0] - 2026-01-01\n", "Raise __version__"),
        ("## [Unreleased]\n### New things\n- a\n", "Use one of Added"),
        ("## [Unreleased]\n### Added\n\n### Fixed\n- a\n", "or remove it"),
    ],
)
def test_a_fault_is_found(text, advice):
    (violation,) = faults(text, "0.1.0")
    assert advice in violation.instead
