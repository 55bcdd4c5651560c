"""Generated parts of the pages are fresh, and each one is used."""

from __future__ import annotations

import pytest

from tests.docs.generate import MARKED, PARTS, refreshed, render
from tests.docs.pages import pages
from tests.tidy.tree import shown


@pytest.mark.parametrize("page", pages(), ids=shown)
def test_generated_parts_are_fresh(page):
    text = page.read_text(encoding="utf-8")
    assert text == refreshed(text), f"{shown(page)} is stale; run `make docs`"


@pytest.mark.parametrize("name", PARTS)
def test_every_part_stands_in_a_page(name):
    used = {part["name"] for page in pages() for part in MARKED.finditer(page.read_text(encoding="utf-8"))}
    assert name in used, f"mark a place for it: <!-- generated: {name} -->"


def test_only_the_marked_part_changes():
    page = "before\n<!-- generated: x -->\nold\nold\n<!-- end of generated -->\nafter\n"
    fresh = "before\n<!-- generated: x -->\nnew x\n<!-- end of generated -->\nafter\n"
    assert refreshed(page, lambda name: f"new {name}") == fresh
    assert refreshed(fresh, lambda name: f"new {name}") == fresh


def test_an_unknown_part_is_refused():
    with pytest.raises(LookupError, match="add it to PARTS"):
        render("nobody-made-this")
