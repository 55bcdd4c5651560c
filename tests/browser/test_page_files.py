"""What the page is made of: small, free of foreign code that nobody recorded, and of ways to make HTML from strings."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from tests.tidy.tree import ROOT
from windfall.daemon.page_files import read_files

PAGE = ROOT / "src" / "windfall" / "dashboard"
VENDOR = PAGE / "vendor"
OURS = sorted(path for path in PAGE.glob("*") if path.suffix in {".js", ".html", ".css", ".svg"})
SERVED = [*OURS, *sorted(path for path in VENDOR.glob("*") if path.suffix in {".js", ".css"})]
#: Bytes of what the page loads, as it is sent: what is written here, and the libraries beside it.
BUDGET, LIBRARY_BUDGET = 150_000, 25_000
#: Ways from a string to markup or code.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\b|new Function"
    r"|srcdoc|javascript:"
)


def test_the_whole_page_is_small():
    sent = read_files(PAGE)
    sizes = {path.name: len(sent[f"/ui/{path.name}"].content) for path in OURS}
    assert sum(sizes.values()) < BUDGET, sorted(sizes.items(), key=lambda item: -item[1])
    assert sum(path.stat().st_size for path in SERVED if path not in OURS) < LIBRARY_BUDGET


def test_libraries_are_those_of_the_manifest():
    entries = json.loads((VENDOR / "MANIFEST.json").read_text())
    assert {entry["file"] for entry in entries} == {path.name for path in VENDOR.glob("*.js")}
    for entry in entries:
        content = (VENDOR / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]
        assert len(content) == entry["bytes"]
        assert entry["licence"] in {"MIT", "Apache-2.0"}
        assert (VENDOR / entry["licenceFile"]).stat().st_size > 0
        assert re.fullmatch(r"[0-9.]+", entry["version"])


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_no_string_becomes_markup_or_code(path):
    assert not FORBIDDEN.search(path.read_text())


def test_the_first_page_has_neither_inline_script_nor_style():
    text = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", text) == []
    assert re.findall(r"(?:href|src)=\"(?:https?:)?//", text) == []


def test_every_import_is_a_file_of_the_page():
    for path in SERVED:
        text = path.read_text() if path.suffix == ".js" else ""
        for name in re.findall(r"\bimport\b[^;\"]*from ?\"([^\"]+)\"", text):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_every_module_says_what_it_is():
    for path in OURS:
        if path.suffix == ".js":
            assert re.match(r"// [A-Z]", path.read_text()), path.name
