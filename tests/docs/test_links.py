"""Every link inside the repository leads somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import anchors, links, pages
from tests.tidy.tree import Violation, report, shown


def dead_links(page: Path) -> Iterator[Violation]:
    """The links of a page whose file or heading does not exist; other hosts are not asked."""
    text = page.read_text(encoding="utf-8")
    for link in links(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path) if path else page
        if not target.exists():
            yield Violation(
                shown(page), f"links to {link}, which does not exist", "Correct or remove the link"
            )
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield Violation(
                shown(page), f"links to {link}, but no heading has that anchor", "Correct the anchor"
            )


@pytest.mark.parametrize("page", pages(), ids=shown)
def test_links_lead_somewhere(page):
    found = list(dead_links(page))
    assert not found, report(found)


def test_dead_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `thing`\n[a](gone.md) [b](#one-thing) [c](#two) [d](https://h/x) ![e](no.png)\n`[f](no)`\n"
    )
    assert [v.what.split()[2].rstrip(",") for v in dead_links(page)] == ["gone.md", "#two", "no.png"]
