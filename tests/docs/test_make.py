"""`make help` lists every target, and the pages name no target that is not there."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.docs.pages import code_lines, pages
from tests.tidy.tree import ROOT, shown

#: What the pages promise; a target may be added but none of these may go away.
PROMISED = {
    "help",
    "demo",
    "demo-many",
    "test",
    "check",
    "fmt",
    "sim",
    "drill",
    "drill-hosts",
    "frameworks",
    "soak",
    "bench",
    "docs",
    "lock",
    "clean",
}


def targets_in_help() -> set[str]:
    shown_help = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  ([a-z-]+) +\S", shown_help, re.MULTILINE))


def targets_named(text: str) -> set[str]:
    """The targets of all `make ...` commands in the code of a page."""
    return {
        word
        for line in code_lines(text)
        if (command := re.match(r"make\s+(.*)", line))
        for word in command[1].partition("#")[0].split()
        if re.fullmatch(r"[a-z-]+", word)
    }


def test_help_lists_every_promised_target():
    assert targets_in_help() >= PROMISED


def test_every_phony_target_explains_itself():
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets_in_help()


@pytest.mark.parametrize("page", pages(), ids=shown)
def test_pages_name_real_targets(page):
    assert targets_named(page.read_text(encoding="utf-8")) <= targets_in_help()


def test_targets_are_found_in_blocks_and_spans():
    text = "Run `make test` or make believe.\n```sh\n$ make sim SEED=7  # replay\nmake nonsense\n```\n"
    assert targets_named(text) == {"test", "sim", "nonsense"}
